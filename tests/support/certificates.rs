//! A certificate authority of a test's own, made by openssl.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An authority, and what it has signed, in a folder of the test's.
pub struct Authority {
    folder: PathBuf,
}

/// A server's certificate and key, PEM.
pub struct ServerCertificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Runs a tool that must succeed.
pub fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?} can't be run: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn openssl() -> Command {
    Command::new("openssl")
}

const NEW_KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

impl Authority {
    /// A new one in `folder`, which is made.
    pub fn new(folder: &Path) -> Self {
        fs::create_dir_all(folder).unwrap();
        run(openssl()
            .current_dir(folder)
            .args(["req", "-x509", "-sha256", "-days", "2", "-keyout", "ca.key", "-out", "ca.crt"])
            .args(NEW_KEY)
            .args(["-subj", "/CN=sealroot test authority"])
            .args(["-addext", "keyUsage=critical,keyCertSign,cRLSign"]));
        Self { folder: folder.into() }
    }

    /// The authority's own certificate.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// The authority's certificate and key, as a careless operator gives them to a server.
    pub fn as_server(&self) -> ServerCertificate {
        ServerCertificate { certificate: self.certificate(), key: self.folder.join("ca.key") }
    }

    /// A certificate for `names`, as `DNS:localhost,IP:127.0.0.1`.
    pub fn server(&self, names: &str) -> ServerCertificate {
        self.sign(
            names,
            &["x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key"],
            &["-CAcreateserial", "-days", "2", "-sha256"],
        )
    }

    /// One whose time is over.
    pub fn expired(&self, names: &str) -> ServerCertificate {
        fs::write(self.folder.join("index"), "").unwrap();
        let config = "[ca]\ndefault_ca=d\n[d]\ndatabase=index\nnew_certs_dir=.\nrand_serial=yes\n\
                      default_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n";
        fs::write(self.folder.join("ca.conf"), config).unwrap();
        let dates = ["-startdate", "20200101000000Z", "-enddate", "20200201000000Z", "-batch", "-notext"];
        self.sign(
            names,
            &["ca", "-config", "ca.conf", "-in", "server.csr", "-cert", "ca.crt"],
            &[&["-keyfile", "ca.key"], &dates[..]].concat(),
        )
    }

    fn sign(&self, names: &str, command: &[&str], more: &[&str]) -> ServerCertificate {
        run(openssl()
            .current_dir(&self.folder)
            .args(["req", "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server"])
            .args(NEW_KEY));
        let extensions =
            format!("subjectAltName={names}\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n");
        fs::write(self.folder.join("extensions"), extensions).unwrap();
        run(openssl().current_dir(&self.folder).args(command).args(more).args([
            "-extfile",
            "extensions",
            "-out",
            "server.crt",
        ]));
        ServerCertificate { certificate: self.folder.join("server.crt"), key: self.folder.join("server.key") }
    }
}
