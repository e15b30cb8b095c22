//! A host of an NVMe over Fabrics target, without a kernel: lists subsystems, reads and writes blocks.
//!
//! ```text
//! nonic nvme-target --memory 64M &
//! initiator list  127.0.0.1:4420
//! initiator write 127.0.0.1:4420 NQN 0 "hello, disk"
//! initiator read  127.0.0.1:4420 NQN 0 1
//! ```
//!
//! `initiator demo` does the same with a target in its own process.

use nonic::{Device, Listener};
use nonic_nvme::initiator::{Initiator, discover};
use nonic_nvme::wire::Nqn;
use nonic_nvme::{FileDisk, Target, TargetConfig};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["list", target] => list(target.parse()?),
        ["read", target, nqn, first, blocks] => read(target.parse()?, nqn, first.parse()?, blocks.parse()?),
        ["write", target, nqn, first, text] => write(target.parse()?, nqn, first.parse()?, text),
        ["demo"] => demo(),
        _ => Err("usage: initiator list TARGET | read TARGET NQN FIRST BLOCKS | write TARGET NQN FIRST TEXT | demo".into()),
    }
}

fn list(target: SocketAddr) -> Result<()> {
    let device = Device::toward(target.ip())?;
    for entry in discover(&device, target)? {
        println!("{} at {}:{}", entry.subsystem_nqn, entry.address, entry.port);
        let host = connect(target, &entry.subsystem_nqn)?;
        let namespace = host.namespace;
        println!(
            "  namespace 1: {} blocks of {} bytes, serial number {}",
            namespace.blocks,
            host.block_length(),
            host.controller.serial
        );
    }
    Ok(())
}

fn read(target: SocketAddr, nqn: &str, first: u64, blocks: u16) -> Result<()> {
    let data = connect(target, nqn)?.read(first, blocks)?;
    let end = data
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    println!("{}", String::from_utf8_lossy(&data[..end]));
    Ok(())
}

fn write(target: SocketAddr, nqn: &str, first: u64, text: &str) -> Result<()> {
    let mut host = connect(target, nqn)?;
    let mut data = text.as_bytes().to_vec();
    data.resize(data.len().max(1).next_multiple_of(host.block_length()), 0);
    host.write(first, &data)?;
    Ok(host.flush()?)
}

fn connect(target: SocketAddr, nqn: &str) -> Result<Initiator> {
    let nqn = Nqn::new(nqn).ok_or("a name begins with `nqn.`")?;
    let device = Device::toward(target.ip())?;
    Ok(Initiator::connect(
        &device,
        target,
        &nqn,
        Duration::from_secs(30),
    )?)
}

fn demo() -> Result<()> {
    let listener = Listener::bind(&Device::open("roce_lo")?, "127.0.0.1:0".parse()?)?;
    let address = listener.local_addr();
    let nqn = "nqn.2026-11.org.nonic-rdma:demo";
    let config = TargetConfig::new(Nqn::new(nqn).ok_or("a name")?);
    let target = Arc::new(Target::new(
        config,
        Arc::new(FileDisk::in_memory(1 << 20)?),
        |_| {},
    )?);
    let serving = Arc::clone(&target);
    let server = std::thread::spawn(move || serving.serve(&listener));
    list(address)?;
    write(address, nqn, 8, "hello, disk")?;
    read(address, nqn, 8, 1)?;
    target.stop();
    server.join().map_err(|_| "the target panicked")?;
    Ok(())
}
