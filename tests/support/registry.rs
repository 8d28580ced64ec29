//! Debian's docker-registry on a free loopback port: over TLS with an authority of its own and one user, or
//! as the test wants it. Ended by its process id when dropped.
//!
//! Include it with `#[path = "support/registry.rs"] mod registry;`.
// Each test file uses its own part of this.
#![allow(dead_code)]

#[path = "certificates.rs"]
pub mod certificates;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use certificates::{Authority, ServerCertificate, run};

/// The one user of a registry with basic authentication.
pub const USER: &str = "pusher";
/// Their password.
pub const PASSWORD: &str = "s3cret-pass";

/// How a registry is to be.
pub struct Setup {
    /// Whom it asks to log in; nothing lets everybody in.
    pub auth: Auth,
    /// The certificate; nothing is plain HTTP.
    pub tls: Option<ServerCertificate>,
    /// Whether it refuses every change.
    pub read_only: bool,
}

/// Who may use a registry.
pub enum Auth {
    Nobody,
    Password,
    /// Bearer tokens from `realm`, signed by a certificate.
    Token {
        realm: String,
        signer: PathBuf,
    },
}

/// A running registry.
pub struct Registry {
    folder: tempfile::TempDir,
    ca: PathBuf,
    port: u16,
    process: Child,
}

impl Registry {
    /// TLS for 127.0.0.1 and localhost, basic authentication.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(&folder.path().join("tls"));
        let tls = Some(authority.server("DNS:localhost,IP:127.0.0.1"));
        Self::start_in(folder, authority.certificate(), Setup { auth: Auth::Password, tls, read_only: false })
    }

    /// As `setup` says; `ca` is the certificate that its clients trust.
    pub fn start_in(folder: tempfile::TempDir, ca: PathBuf, setup: Setup) -> Self {
        // Another process may take the free port before the registry does.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            configure(folder.path(), port, &setup);
            if let Some(process) = serve(folder.path(), port) {
                return Self { folder, ca, port, process };
            }
        }
        panic!("docker-registry does not start: {}", log(folder.path()));
    }

    /// `127.0.0.1:PORT`.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The authority's certificate, for `--ca`.
    pub fn ca(&self) -> &Path {
        &self.ca
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Where it keeps what is pushed.
    pub fn storage(&self) -> PathBuf {
        self.folder.path().join("storage")
    }

    /// What it has said.
    pub fn log(&self) -> String {
        log(self.folder.path())
    }

    /// Ends the process, as a crash would.
    pub fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts it again on the same port, with what it held.
    pub fn restart(&mut self) {
        self.stop();
        self.process = serve(self.folder.path(), self.port).expect("docker-registry starts again");
    }

    /// Has skopeo, an independent client, copy an image into the folder `into`, in its `dir:` form.
    pub fn pull(&self, reference: &str, into: &Path) {
        let certificates = self.folder.path().join("skopeo");
        fs::create_dir_all(&certificates).unwrap();
        fs::copy(&self.ca, certificates.join("ca.crt")).unwrap();
        run(Command::new("skopeo")
            .args(["copy", "--quiet", "--preserve-digests", "--src-cert-dir"])
            .arg(&certificates)
            .args(["--src-creds", &format!("{USER}:{PASSWORD}")])
            .arg(format!("docker://{reference}"))
            .arg(format!("dir:{}", into.display())));
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.stop();
    }
}

fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}

fn configure(folder: &Path, port: u16, setup: &Setup) {
    let at = folder.display();
    let auth = match &setup.auth {
        Auth::Nobody => String::new(),
        Auth::Password => {
            let line = run(Command::new("htpasswd").args(["-Bbn", "-C", "4", USER, PASSWORD]));
            fs::write(folder.join("htpasswd"), line).unwrap();
            format!("auth:\n  htpasswd:\n    realm: test\n    path: {at}/htpasswd\n")
        }
        Auth::Token { realm, signer } => format!(
            "auth:\n  token:\n    realm: {realm}\n    service: test-registry\n    issuer: test-issuer\n    \
             rootcertbundle: {}\n",
            signer.display()
        ),
    };
    let tls = match &setup.tls {
        None => String::new(),
        Some(tls) => format!(
            "  tls:\n    certificate: {}\n    key: {}\n",
            tls.certificate.display(),
            tls.key.display()
        ),
    };
    let config = format!(
        "version: 0.1\nlog:\n  level: info\nstorage:\n  filesystem:\n    rootdirectory: {at}/storage\n  \
         maintenance:\n    readonly:\n      enabled: {}\n{auth}http:\n  addr: 127.0.0.1:{port}\n  \
         secret: of-a-test\n{tls}",
        setup.read_only
    );
    fs::write(folder.join("config.yml"), config).unwrap();
}

/// Starts the process and waits until it answers; nothing if it ends instead.
fn serve(folder: &Path, port: u16) -> Option<Child> {
    let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).unwrap();
    let mut process = Command::new("docker-registry")
        .arg("serve")
        .arg(folder.join("config.yml"))
        .env("OTEL_TRACES_EXPORTER", "none")
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("docker-registry can be run: install the package docker-registry");
    let begun = Instant::now();
    while process.try_wait().unwrap().is_none() {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Some(process);
        }
        if begun.elapsed() > Duration::from_secs(30) {
            let _ = process.kill();
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = process.wait();
    None
}

/// Bytes that look like noise to everybody but this function.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..len.div_ceil(8)).flat_map(|_| next()).take(len).collect()
}
