//! The bytes to and from an NBD server: short waits, so that a stop is heard, and an end to waiting.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::NbdError;
use super::address::Server;
use crate::disk::targets::TargetError;
use crate::io::Task;

/// How often a wait looks whether it should go on.
const TICK: Duration = Duration::from_millis(200);
const CONNECT: Duration = Duration::from_secs(20);
/// A server that says nothing for so long is taken to be gone. Flushing may take minutes.
const SILENCE: Duration = Duration::from_secs(15 * 60);
/// As [`SILENCE`], for the first words: a server may be opening what it serves.
const GREETING: Duration = Duration::from_secs(60);

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// An open connection.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    silence: Duration,
}

impl Connection {
    pub(super) fn open(server: &Server) -> Result<Self, NbdError> {
        let connect = |source| NbdError::Connect { server: server.to_string(), source };
        let stream: Box<dyn Stream> = match server {
            Server::Tcp(host, port) => {
                let stream = tcp(host, *port).map_err(connect)?;
                stream
                    .set_nodelay(true)
                    .and_then(|()| stream.set_read_timeout(Some(TICK)))
                    .and_then(|()| stream.set_write_timeout(Some(TICK)))
                    .map_err(connect)?;
                Box::new(stream)
            }
            Server::Unix(path) => {
                let stream = UnixStream::connect(path).map_err(connect)?;
                stream
                    .set_read_timeout(Some(TICK))
                    .and_then(|()| stream.set_write_timeout(Some(TICK)))
                    .map_err(connect)?;
                Box::new(stream)
            }
        };
        Ok(Self { stream, silence: GREETING })
    }

    /// The greeting is over: what comes now may take its time.
    pub(super) fn be_patient(&mut self) {
        self.silence = SILENCE;
    }

    /// Sends all of `bytes`.
    pub(super) fn send(&mut self, mut bytes: &[u8], task: &dyn Task) -> Result<(), TargetError> {
        let mut since = Instant::now();
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(NbdError::Closed.into()),
                Ok(sent) => {
                    bytes = &bytes[sent..];
                    since = Instant::now();
                }
                Err(error) => self.wait(error, since, task)?,
            }
        }
        Ok(())
    }

    /// Fills `buf`.
    pub(super) fn receive(&mut self, buf: &mut [u8], task: &dyn Task) -> Result<(), TargetError> {
        let (mut filled, mut since) = (0, Instant::now());
        while filled < buf.len() {
            match self.stream.read(&mut buf[filled..]) {
                Ok(0) => return Err(NbdError::Closed.into()),
                Ok(read) => {
                    filled += read;
                    since = Instant::now();
                }
                Err(error) => self.wait(error, since, task)?,
            }
        }
        Ok(())
    }

    pub(super) fn array<const N: usize>(&mut self, task: &dyn Task) -> Result<[u8; N], TargetError> {
        let mut bytes = [0; N];
        self.receive(&mut bytes, task)?;
        Ok(bytes)
    }

    fn wait(&self, error: io::Error, since: Instant, task: &dyn Task) -> Result<(), TargetError> {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => return Err(NbdError::Closed.into()),
            _ => return Err(NbdError::Broken(error).into()),
        }
        task.advance(0)?;
        if since.elapsed() > self.silence {
            return Err(NbdError::Silent { seconds: self.silence.as_secs() }.into());
        }
        Ok(())
    }
}

fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}
