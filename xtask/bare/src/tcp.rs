//! Bare TCP sockets, by the plainest system calls there are.

use super::{PATIENCE, spin, typical_us};
use anyhow::{Context, Result, ensure};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// As much as the sink takes at once.
const SWALLOW_BYTES: usize = 1 << 20;

/// Ping-pong, both sides polling: half of the round trip.
pub(super) fn latency(server: &str, size: usize, duration: Duration) -> Result<f64> {
    let mut stream = connect(server)?;
    stream.set_nonblocking(true)?;
    let mut buffer = vec![0x5a; size];
    let round_trip = typical_us(duration, 1, || {
        send(&mut stream, &buffer)?;
        ensure!(receive(&mut stream, &mut buffer)?, "the other side has hung up");
        Ok(())
    })?;
    Ok(round_trip / 2.0)
}

/// One direction, a system call per message; the last word of the sink ends the clock.
pub(super) fn bandwidth(server: &str, size: usize, duration: Duration) -> Result<f64> {
    let mut stream = connect(server)?;
    let message = vec![0x5a; size];
    let start = Instant::now();
    let mut sent = 0_u64;
    while start.elapsed() < duration {
        stream.write_all(&message).context("sending")?;
        sent += size as u64;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut counted = [0; 8];
    stream
        .read_exact(&mut counted)
        .context("the sink did not say what it took")?;
    ensure!(
        u64::from_ne_bytes(counted) == sent,
        "the sink did not take everything"
    );
    Ok(sent as f64 / start.elapsed().as_secs_f64())
}

/// Sends every message back, once it has all of it, until the other side hangs up.
pub(super) fn serve_echo(address: Ipv4Addr, size: usize) -> Result<()> {
    let mut stream = accept(address)?;
    stream.set_nonblocking(true)?;
    let mut buffer = vec![0; size];
    while receive(&mut stream, &mut buffer)? {
        send(&mut stream, &buffer)?;
    }
    Ok(())
}

/// Swallows everything, and says how much it was.
pub(super) fn serve_sink(address: Ipv4Addr) -> Result<()> {
    let mut stream = accept(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = vec![0; SWALLOW_BYTES];
    let mut taken = 0_u64;
    loop {
        match stream.read(&mut buffer).context("receiving")? {
            0 => break,
            length => taken += length as u64,
        }
    }
    stream.write_all(&taken.to_ne_bytes())?;
    Ok(())
}

fn connect(server: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(server).context("connecting")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn accept(address: Ipv4Addr) -> Result<TcpStream> {
    let listener = TcpListener::bind((address, 0))?;
    println!("{}", listener.local_addr()?);
    listener.set_nonblocking(true)?;
    let (stream, _) = spin(|| unless_busy(listener.accept()))?;
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn send(stream: &mut TcpStream, message: &[u8]) -> Result<()> {
    let mut sent = 0;
    while sent < message.len() {
        sent += spin(|| unless_busy(stream.write(&message[sent..])))?;
    }
    Ok(())
}

/// A whole message; `false` if the other side has hung up.
fn receive(stream: &mut TcpStream, message: &mut [u8]) -> Result<bool> {
    let mut received = 0;
    while received < message.len() {
        match spin(|| unless_busy(stream.read(&mut message[received..])))? {
            0 => return Ok(false),
            length => received += length,
        }
    }
    Ok(true)
}

fn unless_busy<T>(done: io::Result<T>) -> Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error).context("a socket"),
    }
}
