//! The same measurements by TCP.

use super::Outcome;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

pub(crate) fn connect(peer: SocketAddr) -> Outcome<TcpStream> {
    prepared(TcpStream::connect(peer)?)
}

pub(crate) fn accept(listener: &TcpListener) -> Outcome<TcpStream> {
    prepared(listener.accept()?.0)
}

/// As programs do it that care for latency.
fn prepared(stream: TcpStream) -> Outcome<TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// How long a round trip takes.
pub(crate) fn ping(stream: &mut TcpStream, count: usize, length: usize) -> Outcome<Duration> {
    let mut bytes = vec![1; length];
    super::typical(count, || {
        stream.write_all(&bytes)?;
        stream.read_exact(&mut bytes)?;
        Ok(())
    })
}

/// Sends back what comes.
pub(crate) fn echo(stream: &mut TcpStream, count: usize, length: usize) -> Outcome<()> {
    let mut bytes = vec![0; length];
    for _ in 0..count {
        stream.read_exact(&mut bytes)?;
        stream.write_all(&bytes)?;
    }
    Ok(())
}
