//! Tokens, with docker-registry as the judge of them; and answers that only a broken or hostile registry gives.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/https.rs"]
mod https;
#[path = "support/registry.rs"]
mod registry;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use https::{Answer, Https, Request};
use registry::certificates::{Authority, run};
use registry::{Auth, PASSWORD, Setup, USER};
use sealroot::containerdisk::{Digest, Layout};
use sealroot::io::Silent;
use sealroot::registry::{
    AuthFiles, Connection, Credential, Pushed, Registry, RegistryError, Secret, UploadOptions,
};

/// A layout of one small layer and a configuration, by umoci.
fn layout(folder: &Path) -> Layout {
    let path = folder.join("layout");
    let name = format!("{}:t", path.display());
    fs::write(folder.join("content"), "a disk").unwrap();
    run(Command::new("umoci").arg("init").arg("--layout").arg(&path));
    run(Command::new("umoci").args(["new", "--image", &name]));
    run(Command::new("umoci")
        .args(["insert", "--rootless", "--image", &name])
        .arg(folder.join("content"))
        .arg("/disk/disk.qcow2"));
    Layout::open(&path).unwrap()
}

fn password() -> Credential {
    Credential::password(USER.into(), PASSWORD.into()).unwrap()
}

fn push(host: &str, ca: PathBuf, credential: Credential, layout: &Layout) -> Result<Pushed, RegistryError> {
    let connection = Connection { ca: Some(ca), plain_http: false, credential };
    let options = UploadOptions { first_pause: Duration::from_millis(10), ..UploadOptions::default() };
    let image = format!("{host}/private/a:t").parse().unwrap();
    Registry::open_with(image, connection, options)?.push_layout(layout, &Silent)
}

/// Signs tokens as docker-registry checks them, and hands them out over TLS.
struct TokenServer {
    folder: tempfile::TempDir,
    authority: Authority,
    server: Https,
    rights: Arc<Mutex<&'static str>>,
    /// When a token ends for the registry, in seconds from now; it allows a minute more.
    ends_in: Arc<Mutex<i64>>,
    /// What the client is told of that.
    told: Arc<Mutex<u64>>,
}

const REFRESH: &str = "a-refresh-token";

impl TokenServer {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(&folder.path().join("tls"));
        let signing = folder.path().to_owned();
        run(Command::new("openssl")
            .current_dir(&signing)
            .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes"])
            .args(["-days", "2", "-subj", "/CN=signer", "-keyout", "signer.key", "-out", "signer.crt"]));
        let rights = Arc::new(Mutex::new(r#""pull","push""#));
        let (ends_in, told) = (Arc::new(Mutex::new(300)), Arc::new(Mutex::new(300)));
        let tls = authority.server("IP:127.0.0.1");
        let (r, e, t) = (Arc::clone(&rights), Arc::clone(&ends_in), Arc::clone(&told));
        let server = Https::serve(&tls, move |request| {
            let scope = "scope=repository%3Aprivate%2Fa%3Apull%2Cpush";
            let basic = format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")));
            let body = String::from_utf8(request.body.clone()).unwrap();
            let known = match request.method.as_str() {
                "GET" => {
                    assert!(request.path.contains(scope) && request.path.contains("service=test-registry"));
                    request.header("authorization") == Some(&basic)
                }
                _ => {
                    assert!(body.contains(scope) && body.contains("grant_type=refresh_token"), "{body}");
                    body.contains(&format!("refresh_token={REFRESH}"))
                        && request.header("authorization").is_none()
                }
            };
            if !known {
                return Answer::new(401).body(r#"{"details":"no"}"#);
            }
            let token = sign(&signing, *r.lock().unwrap(), *e.lock().unwrap());
            let name = if request.method == "GET" { "token" } else { "access_token" };
            Answer::new(200).body(format!(r#"{{"{name}":"{token}","expires_in":{}}}"#, *t.lock().unwrap()))
        });
        Self { folder, authority, server, rights, ends_in, told }
    }

    /// A registry that trusts this server's tokens, with the same authority for TLS.
    fn registry(&self) -> registry::Registry {
        let setup = Setup {
            auth: Auth::Token {
                realm: format!("https://{}/token", self.server.host()),
                signer: self.folder.path().join("signer.crt"),
            },
            tls: Some(self.authority.server("IP:127.0.0.1")),
            read_only: false,
        };
        registry::Registry::start_in(tempfile::tempdir().unwrap(), self.authority.certificate(), setup)
    }
}

/// A JSON Web Token, RS256, that names its own certificate.
fn sign(folder: &Path, rights: &str, ends_in: i64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
    let certificate = fs::read_to_string(folder.join("signer.crt")).unwrap();
    let der: String = certificate.lines().filter(|line| !line.starts_with("---")).collect();
    let header = format!(r#"{{"typ":"JWT","alg":"RS256","x5c":["{der}"]}}"#);
    let claims = format!(
        r#"{{"iss":"test-issuer","sub":"{USER}","aud":"test-registry","exp":{},"nbf":{},"iat":{now},"jti":"1",
        "access":[{{"type":"repository","name":"private/a","actions":[{rights}]}}]}}"#,
        now + ends_in,
        now - 300
    );
    let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let (message, signature) = (folder.join(format!("{now}.txt")), folder.join(format!("{now}.sig")));
    fs::write(&message, &text).unwrap();
    run(Command::new("openssl")
        .args(["dgst", "-sha256", "-sign"])
        .arg(folder.join("signer.key"))
        .arg("-out")
        .arg(&signature)
        .arg(&message));
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(fs::read(signature).unwrap()))
}

#[test]
fn docker_registry_accepts_the_tokens_that_are_fetched() {
    let folder = tempfile::tempdir().unwrap();
    let layout = layout(folder.path());
    let tokens = TokenServer::start();
    let registry = tokens.registry();
    let go = |credential| push(&registry.host(), registry.ca().into(), credential, &layout);

    let wrong = Credential::password(USER.into(), "wrong".into()).unwrap();
    let error = go(wrong).unwrap_err();
    assert!(
        matches!(&error, RegistryError::CredentialsRefused { host, .. } if *host == tokens.server.host()),
        "{error}"
    );
    let error = go(Credential::Anonymous).unwrap_err();
    assert!(matches!(error, RegistryError::NoCredentials { .. }), "{error}");

    *tokens.rights.lock().unwrap() = r#""pull""#;
    let error = go(password()).unwrap_err().to_string();
    assert!(error.contains(&format!("'{USER}' may not push to private/a")), "{error}");

    *tokens.rights.lock().unwrap() = r#""pull","push""#;
    let before = tokens.server.seen().len();
    let pushed = go(password()).unwrap();
    assert_eq!((pushed.blobs_uploaded, pushed.blobs_present), (2, 0));
    assert_eq!(tokens.server.seen().len() - before, 1, "one token is enough");
    // The registry itself never saw the password.
    assert!(!registry.log().contains(&STANDARD.encode(format!("{USER}:{PASSWORD}"))));

    // An identity token, as found in a login file.
    let auths = folder.path().join("config.json");
    let entry = format!(r#"{{"auths":{{"{}":{{"identitytoken":"{REFRESH}"}}}}}}"#, registry.host());
    fs::write(&auths, entry).unwrap();
    let image = format!("{}/private/a:t", registry.host()).parse().unwrap();
    let found = AuthFiles::only(auths).find(&image).unwrap();
    assert!(matches!(found, Credential::IdentityToken(_)));
    assert_eq!(go(found).unwrap().digest, pushed.digest);
    let error = go(Credential::IdentityToken(Secret::new("stale".into()))).unwrap_err().to_string();
    assert!(error.contains("the identity token") && !error.contains("stale"), "{error}");
}

#[test]
fn a_token_that_ends_on_the_way_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let layout = layout(folder.path());
    let tokens = TokenServer::start();
    let registry = tokens.registry();
    let connection = Connection { ca: Some(registry.ca().into()), plain_http: false, credential: password() };
    let target = format!("{}/private/a:t", registry.host()).parse().unwrap();
    let target = Registry::open(target, connection).unwrap();
    let fetched = || tokens.server.seen().len();
    let refused = || registry.log().matches("error authorizing context").count();

    // The registry's minute of grace leaves ten seconds. The client is told an hour, and learns better by a 401.
    *tokens.ends_in.lock().unwrap() = -50;
    *tokens.told.lock().unwrap() = 3600;
    target.push_bytes(b"one".to_vec(), &Silent).unwrap();
    assert_eq!((fetched(), refused()), (1, 1));
    *tokens.ends_in.lock().unwrap() = 300;
    *tokens.told.lock().unwrap() = 2;
    std::thread::sleep(Duration::from_secs(12));
    target.push_bytes(b"two".to_vec(), &Silent).unwrap();
    assert_eq!(refused(), 2);
    // Told that the new one ends soon, it fetches another before it is refused.
    std::thread::sleep(Duration::from_secs(2));
    let before = fetched();
    target.push_layout(&layout, &Silent).unwrap();
    assert!(fetched() > before);
    assert_eq!(refused(), 2);
}

/// A registry in a few lines, so that single answers can be replaced.
#[derive(Default)]
struct Fake {
    blobs: BTreeMap<String, Vec<u8>>,
    upload: Vec<u8>,
    manifest: Vec<u8>,
}

impl Fake {
    fn answer(&mut self, request: &Request) -> Answer {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        match request.method.as_str() {
            "HEAD" => match self.blobs.get(&name) {
                Some(blob) => Answer::new(200).header("content-length", blob.len().to_string()),
                None => Answer::new(404),
            },
            "POST" => Answer::new(202).header("location", "/v2/private/a/blobs/uploads/1?state=x"),
            "PATCH" => {
                self.upload = request.body.clone();
                let range = format!("0-{}", self.upload.len() - 1);
                Answer::new(202).header("location", "2?state=y").header("range", range)
            }
            "PUT" if path.contains("/blobs/") => {
                assert!(query.contains("state=y"), "{query}");
                let digest = query.rsplit("digest=sha256%3A").next().unwrap();
                self.blobs.insert(format!("sha256:{digest}"), self.upload.clone());
                Answer::new(201)
            }
            "PUT" => {
                self.manifest = request.body.clone();
                Answer::new(201)
            }
            _ if path == "/v2/" => Answer::new(200),
            _ => Answer::new(200).body(self.manifest.clone()),
        }
    }
}

/// Pushes to the fake, with some answers replaced; returns how that went and every request.
fn against(
    change: impl Fn(&Request, usize, &mut Fake) -> Option<Answer> + Send + Sync + 'static,
) -> (Result<Pushed, RegistryError>, Vec<Request>) {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(&folder.path().join("tls"));
    let (fake, count) = (Mutex::new(Fake::default()), AtomicUsize::new(0));
    let server = Https::serve(&authority.server("IP:127.0.0.1"), move |request| {
        let basic = format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")));
        if request.header("authorization") != Some(&basic) {
            return Answer::new(401).header("www-authenticate", "Basic realm=\"x\"");
        }
        let mut fake = fake.lock().unwrap();
        let answer = change(request, count.fetch_add(1, Ordering::SeqCst), &mut fake);
        answer.unwrap_or_else(|| fake.answer(request))
    });
    let layout = layout(folder.path());
    let pushed = push(&server.host(), authority.certificate(), password(), &layout);
    (pushed, server.seen())
}

fn is(request: &Request, method: &str, part: &str) -> bool {
    request.method == method && request.path.contains(part)
}

#[track_caller]
fn fails(
    words: &[&str],
    change: impl Fn(&Request, usize, &mut Fake) -> Option<Answer> + Send + Sync + 'static,
) -> Vec<Request> {
    let (pushed, seen) = against(change);
    let error = pushed.unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "'{word}' is not in: {error}");
    }
    seen
}

#[test]
fn relative_locations_are_followed() {
    let (pushed, seen) = against(|_, _, _| None);
    assert_eq!(pushed.unwrap().blobs_uploaded, 2);
    assert!(seen.iter().any(|r| is(r, "PUT", "/v2/private/a/blobs/uploads/2?state=y&digest=sha256%3A")));
    assert!(seen.iter().all(|r| !r.path.contains(PASSWORD)));
}

#[test]
fn credentials_go_to_no_other_host_and_nothing_goes_in_the_clear() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(&folder.path().join("tls"));
    // It has its own authority, which the push does not trust: so a push there must fail, after saying hello.
    let elsewhere = Https::serve(&authority.server("IP:127.0.0.1"), |_| Answer::new(500));
    let to = format!("https://{}/upload", elsewhere.host());
    fails(&["can't be reached", "authority"], move |r, _, _| {
        is(r, "POST", "uploads").then(|| Answer::new(202).header("location", to.clone()))
    });
    assert!(elsewhere.seen().is_empty());

    let seen = fails(&["Location leads to http://127.0.0.1:1", "not encrypted"], |r, _, _| {
        is(r, "POST", "uploads").then(|| Answer::new(202).header("location", "http://127.0.0.1:1/upload"))
    });
    assert!(!seen.iter().any(|r| r.method == "PATCH"));
    fails(&["no Location"], |r, _, _| is(r, "POST", "uploads").then(|| Answer::new(202)));
    fails(&["broke"], |r, _, _| {
        is(r, "HEAD", "blobs").then(|| Answer::new(307).header("location", "http://127.0.0.1:1/blob"))
    });
}

#[test]
fn another_host_gets_the_bytes_without_the_login() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(&folder.path().join("tls"));
    let storage = Https::serve(&authority.server("IP:127.0.0.1"), |r| match r.method.as_str() {
        "PATCH" => Answer::new(202).header("location", "/upload"),
        // A 401 from there is not the registry's, and is not answered.
        _ => Answer::new(401).header("www-authenticate", "Basic realm=\"give it to me\""),
    });
    let to = format!("https://{}/upload", storage.host());
    let main = Https::serve(&authority.server("IP:127.0.0.1"), move |r| match r.method.as_str() {
        "GET" if r.header("authorization").is_none() => {
            Answer::new(401).header("www-authenticate", "Basic realm=\"x\"")
        }
        "GET" => Answer::new(200),
        "POST" => Answer::new(202).header("location", to.clone()),
        _ => Answer::new(404),
    });
    let layout = layout(folder.path());
    let error = push(&main.host(), authority.certificate(), password(), &layout).unwrap_err();
    assert!(matches!(error, RegistryError::Status { status: 401, .. }), "{error}");
    let seen = storage.seen();
    assert!(seen.iter().any(|r| r.method == "PATCH") && seen.iter().any(|r| r.method == "PUT"));
    assert!(seen.iter().all(|r| r.header("authorization").is_none()), "{seen:?}");
    assert!(main.seen().iter().any(|r| r.header("authorization").is_some()));
}

#[test]
fn what_the_registry_holds_is_compared_with_what_was_sent() {
    fails(&["an upload", "bytes up to 7", "and not"], |r, _, fake| {
        is(r, "PATCH", "").then(|| fake.answer(r).header("x-first", "1")).map(|mut answer| {
            answer.headers.retain(|(name, _)| *name != "range");
            answer.header("range", "bytes=0-7")
        })
    });
    // Only the last bytes were kept.
    fails(&["blob sha256:", "1 bytes is there"], |r, _, fake| {
        is(r, "PUT", "/blobs/").then(|| {
            fake.upload.truncate(1);
            fake.answer(r)
        })
    });
    fails(&["blob sha256:", "nothing is there"], |r, _, _| is(r, "PUT", "/blobs/").then(|| Answer::new(201)));
    let other = Digest::of(b"{}").to_string();
    fails(&["manifest 'sha256:", &other], |r, _, _| {
        is(r, "GET", "/manifests/sha256").then(|| Answer::new(200).body("{}"))
    });
    fails(&["manifest 't'", &other], |r, _, _| {
        is(r, "GET", "/manifests/t").then(|| Answer::new(200).body("{}"))
    });
    fails(&["reading the manifest", "404"], |r, _, _| {
        is(r, "GET", "/manifests/sha256").then(|| Answer::new(404))
    });
    fails(&["more than 4194304 bytes"], |r, _, _| {
        is(r, "GET", "/manifests/").then(|| Answer::new(200).body(vec![b' '; 5 << 20]))
    });
}

#[test]
fn passing_failures_are_tried_again_and_others_are_not() {
    // Each request fails once, in a way that passes.
    let statuses = [429, 500, 502, 503, 504, 408];
    let done = Mutex::new(std::collections::BTreeSet::new());
    let (pushed, seen) = against(move |r, n, _| {
        let first = done.lock().unwrap().insert((r.method.clone(), r.path.clone()));
        first.then(|| Answer::new(statuses[n % statuses.len()]).header("retry-after", "0"))
    });
    pushed.unwrap();
    assert!(seen.iter().any(|r| r.method == "PATCH"));

    // Slow to finish: the answer is an error, and the blob is there.
    let (pushed, _) = against(|r, _, fake| {
        is(r, "PUT", "/blobs/").then(|| {
            let _ = fake.answer(r);
            Answer::new(404).body(r#"{"errors":[{"code":"BLOB_UPLOAD_UNKNOWN"}]}"#)
        })
    });
    pushed.unwrap();

    let count = |seen: &[Request], method: &str| seen.iter().filter(|r| r.method == method).count();
    let seen = fails(&["503"], |r, _, _| is(r, "PUT", "/manifests/").then(|| Answer::new(503)));
    assert_eq!(count(&seen, "PUT"), 2 + 5);
    let seen = fails(&["403", "no (DENIED)"], |r, _, _| {
        is(r, "POST", "").then(|| Answer::new(403).body(r#"{"errors":[{"code":"DENIED","message":"no"}]}"#))
    });
    assert_eq!(count(&seen, "POST"), 1);
    let seen =
        fails(&["429"], |r, _, _| is(r, "POST", "").then(|| Answer::new(429).header("retry-after", "9999")));
    assert_eq!(count(&seen, "POST"), 1);
    // Whole, then in parts of 4 MiB, 1 MiB, 256 KiB.
    let seen = fails(&["413"], |r, _, _| is(r, "PATCH", "").then(|| Answer::new(413)));
    assert_eq!(count(&seen, "PATCH"), 4);
    fails(&["no registry"], |r, _, _| is(r, "GET", "/v2/").then(|| Answer::new(404)));
}

#[test]
fn a_challenge_that_is_not_safe_is_not_answered() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(&folder.path().join("tls"));
    let layout = layout(folder.path());
    for (challenge, word) in [
        ("Negotiate", "only negotiate"),
        ("Bearer realm=\"http://127.0.0.1:1/token\"", "not on https"),
        ("Bearer service=\"x\"", "no realm"),
        ("\u{1}", "not how to authenticate"),
    ] {
        let server = Https::serve(&authority.server("IP:127.0.0.1"), move |_| {
            Answer::new(401).header("www-authenticate", challenge)
        });
        let error =
            push(&server.host(), authority.certificate(), password(), &layout).unwrap_err().to_string();
        assert!(error.contains(word) || challenge == "\u{1}", "{error}");
        assert!(server.seen().iter().all(|r| r.header("authorization").is_none()));
    }
}

#[test]
fn a_login_goes_to_the_token_server_and_no_further() {
    let folder = tempfile::tempdir().unwrap();
    let layout = layout(folder.path());
    let authority = Authority::new(&folder.path().join("tls"));
    let tls = authority.server("IP:127.0.0.1,DNS:localhost");
    let thief = Https::serve(&tls, |_| Answer::new(200).body(r#"{"token": "t", "access_token": "t"}"#));
    let stolen = format!("https://localhost:{}/token", thief.host().rsplit(':').next().unwrap());
    let tokens = Https::serve(&tls, move |request| {
        let status = if request.method == "POST" { 307 } else { 302 };
        Answer::new(status).header("location", stolen.as_str())
    });
    let realm = format!("Bearer realm=\"https://{}/token\",service=\"x\"", tokens.host());
    let registry = Https::serve(&tls, move |_| Answer::new(401).header("www-authenticate", realm.as_str()));
    for credential in [password(), Credential::IdentityToken(Secret::new(REFRESH.into()))] {
        let error = push(&registry.host(), authority.certificate(), credential, &layout).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("answered 307") || said.contains("answered 302"), "{said}");
    }
    assert_eq!(tokens.seen().len(), 2);
    assert!(thief.seen().is_empty(), "{:?}", thief.seen());
}

#[test]
fn a_server_that_repeats_the_login_does_not_have_it_shown() {
    let folder = tempfile::tempdir().unwrap();
    let layout = layout(folder.path());
    let authority = Authority::new(&folder.path().join("tls"));
    let tls = authority.server("IP:127.0.0.1");
    let server = Https::serve(&tls, |request| match request.header("authorization") {
        None => Answer::new(401).header("www-authenticate", "Basic realm=\"x\""),
        Some(header) => {
            let plain = STANDARD.decode(header.trim_start_matches("Basic ")).unwrap();
            let plain = String::from_utf8(plain).unwrap();
            Answer::new(403)
                .body(format!(r#"{{"errors": [{{"code": "DENIED", "message": "no {plain} in {header}"}}]}}"#))
        }
    });
    let error = push(&server.host(), authority.certificate(), password(), &layout).unwrap_err();
    let told = format!("{error} {error:?}");
    let secrets = [PASSWORD.to_owned(), STANDARD.encode(format!("{USER}:{PASSWORD}"))];
    assert!(secrets.iter().all(|secret| !told.contains(secret)), "{told}");
    assert!(told.contains("403"), "{told}");
}

#[test]
fn a_token_in_an_answer_that_is_no_200_is_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let layout = layout(folder.path());
    let authority = Authority::new(&folder.path().join("tls"));
    let tls = authority.server("IP:127.0.0.1");
    let tokens = Https::serve(&tls, |_| Answer::new(201).body(r#"{"token": "not-to-be-shown"}"#));
    let realm = format!("Bearer realm=\"https://{}/token\",service=\"x\"", tokens.host());
    let registry = Https::serve(&tls, move |_| Answer::new(401).header("www-authenticate", realm.as_str()));
    let error = push(&registry.host(), authority.certificate(), password(), &layout).unwrap_err();
    let told = format!("{error} {error:?}");
    assert!(told.contains("201") && !told.contains("not-to-be-shown"), "{told}");
}
