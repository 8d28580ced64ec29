//! NBD servers: qemu-nbd, and one of our own that answers as no good server does.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// qemu-nbd over a file, ended by its process id when dropped.
pub struct QemuNbd {
    child: Child,
    uri: String,
    _folder: tempfile::TempDir,
}

impl QemuNbd {
    /// On a socket, raw.
    pub fn start(file: &Path, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let mut command = Command::new("qemu-nbd");
        command.args(["-t", "-f", "raw", "-k"]).arg(&socket).args(options).arg(file);
        let child = command.spawn().expect("qemu-nbd (package qemu-utils) is needed");
        let mut server =
            Self { child, uri: format!("nbd+unix:///?socket={}", socket.display()), _folder: folder };
        server.wait(|| socket.exists());
        server
    }

    /// On a port of loopback.
    pub fn tcp(file: &Path, export: &str, options: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("qemu-nbd");
        command.args(["-t", "-b", "127.0.0.1", "-e", "4", "-x", export, "-p", &port.to_string()]);
        let child = command.args(options).arg(file).spawn().unwrap();
        let uri = format!("nbd://127.0.0.1:{port}/{}", export.replace(' ', "%20"));
        let mut server = Self { child, uri, _folder: tempfile::tempdir().unwrap() };
        server.wait(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
        server
    }

    fn wait(&mut self, there: impl Fn() -> bool) {
        let begun = Instant::now();
        while !there() {
            assert!(self.child.try_wait().unwrap().is_none(), "qemu-nbd ended");
            assert!(begun.elapsed() < Duration::from_secs(20), "qemu-nbd does not begin");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn uri(&self) -> String {
        self.uri.clone()
    }
}

impl Drop for QemuNbd {
    fn drop(&mut self) {
        // SIGTERM: it writes out what it holds.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// How our own server answers.
#[derive(Clone)]
pub struct Export {
    size: u64,
    flags: u16,
    greeting: Option<Vec<u8>>,
    reply_magic: u64,
    info_length: Option<u32>,
    block_sizes: Option<(u32, u32)>,
    answer_magic: u32,
    cookie_xor: u64,
    fail: Option<(u16, u32)>,
    close_after: usize,
    silent_after: usize,
    forgetful: bool,
}

impl Export {
    /// A good one: flush, and write zeroes.
    pub fn new(size: u64) -> Self {
        Self {
            size,
            flags: 1 | 1 << 2 | 1 << 6,
            greeting: None,
            reply_magic: 0x0003_e889_0455_65a9,
            info_length: None,
            block_sizes: None,
            answer_magic: 0x6744_6698,
            cookie_xor: 0,
            fail: None,
            close_after: usize::MAX,
            silent_after: usize::MAX,
            forgetful: false,
        }
    }
    pub fn greeting(mut self, bytes: &[u8]) -> Self {
        self.greeting = Some(bytes.to_vec());
        self
    }
    pub fn reply_magic(mut self, magic: u64) -> Self {
        self.reply_magic = magic;
        self
    }
    pub fn info_length(mut self, length: u32) -> Self {
        self.info_length = Some(length);
        self
    }
    pub fn block_sizes(mut self, least: u32, most: u32) -> Self {
        self.block_sizes = Some((least, most));
        self
    }
    pub fn answer_magic(mut self, magic: u32) -> Self {
        self.answer_magic = magic;
        self
    }
    pub fn cookie_xor(mut self, mask: u64) -> Self {
        self.cookie_xor = mask;
        self
    }
    /// Requests of this kind fail with that code.
    pub fn fail(mut self, kind: u16, code: u32) -> Self {
        self.fail = Some((kind, code));
        self
    }
    pub fn close_after(mut self, requests: usize) -> Self {
        self.close_after = requests;
        self
    }
    pub fn silent_after(mut self, requests: usize) -> Self {
        self.silent_after = requests;
        self
    }
    /// What is written is gone.
    pub fn forgetful(mut self) -> Self {
        self.forgetful = true;
        self
    }
    pub fn flags(mut self, flags: u16) -> Self {
        self.flags = flags;
        self
    }

    /// For one connection.
    pub fn serve(self) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let content = Arc::new(Mutex::new(vec![0; self.size as usize]));
        let requests = Arc::new(AtomicUsize::new(0));
        let (kept, counted) = (Arc::clone(&content), Arc::clone(&requests));
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            // It ends when the client goes.
            let _ = self.talk(stream, &kept, &counted);
        });
        Server { port, content, requests }
    }

    fn talk(
        &self,
        mut stream: TcpStream,
        content: &Mutex<Vec<u8>>,
        requests: &AtomicUsize,
    ) -> io::Result<()> {
        if let Some(greeting) = &self.greeting {
            return stream.write_all(greeting);
        }
        stream.write_all(b"NBDMAGICIHAVEOPT\x00\x03")?;
        let mut head = [0; 4 + 16];
        stream.read_exact(&mut head)?;
        let mut option = vec![0; u32::from_be_bytes(head[16..].try_into().unwrap()) as usize];
        stream.read_exact(&mut option)?;
        let reply = |kind: u32, content: &[u8], length: Option<u32>| {
            let length = length.unwrap_or(content.len() as u32);
            let head =
                [&self.reply_magic.to_be_bytes()[..], &7u32.to_be_bytes(), &kind.to_be_bytes()].concat();
            let kept = &content[..content.len().min(length as usize)];
            [&head[..], &length.to_be_bytes(), kept].concat()
        };
        let info = [&[0, 0][..], &self.size.to_be_bytes(), &self.flags.to_be_bytes()].concat();
        stream.write_all(&reply(3, &info, self.info_length))?;
        if let Some((least, most)) = self.block_sizes {
            let sizes =
                [&[0, 3][..], &least.to_be_bytes(), &most.to_be_bytes(), &most.to_be_bytes()].concat();
            stream.write_all(&reply(3, &sizes, None))?;
        }
        stream.write_all(&reply(1, &[], None))?;
        loop {
            let mut request = [0; 28];
            stream.read_exact(&mut request)?;
            let number = |range: std::ops::Range<usize>| {
                request[range].iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte))
            };
            assert_eq!(number(0..4), 0x2560_9513);
            let (kind, cookie, offset, length) =
                (number(6..8) as u16, number(8..16), number(16..24), number(24..28));
            let mut written = vec![0; if kind == 1 { length as usize } else { 0 }];
            stream.read_exact(&mut written)?;
            let count = requests.fetch_add(1, Ordering::SeqCst) + 1;
            if kind == 2 || count > self.close_after {
                return Ok(());
            }
            if count > self.silent_after {
                continue;
            }
            if let Some((least, most)) = self.block_sizes {
                assert!(length.is_multiple_of(u64::from(least)) && (kind > 1 || length <= u64::from(most)));
            }
            assert!(offset + length <= self.size);
            let range = offset as usize..(offset + length) as usize;
            let code = self.fail.filter(|(of, _)| *of == kind).map_or(0, |(_, code)| code);
            let mut answer = self.answer_magic.to_be_bytes().to_vec();
            answer.extend(code.to_be_bytes());
            answer.extend((cookie ^ self.cookie_xor).to_be_bytes());
            if code == 0 {
                let mut content = content.lock().unwrap();
                match kind {
                    0 => answer.extend(&content[range]),
                    1 if !self.forgetful => content[range].copy_from_slice(&written),
                    6 => content[range].fill(0),
                    _ => {}
                }
            }
            stream.write_all(&answer)?;
        }
    }
}

/// Our own server.
pub struct Server {
    port: u16,
    content: Arc<Mutex<Vec<u8>>>,
    requests: Arc<AtomicUsize>,
}

impl Server {
    pub fn uri(&self) -> String {
        format!("nbd://127.0.0.1:{}/", self.port)
    }
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
    pub fn content(&self) -> Vec<u8> {
        self.content.lock().unwrap().clone()
    }
}
