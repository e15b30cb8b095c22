//! A parameter server: the weights of a model are in one process's memory, and trainers read them and add to them from
//! anywhere, at any time, without asking its program. Here the model is a straight line, and each trainer sees other
//! points of it.
//!
//! `parameter_server serve 127.0.0.1:7473 2` serves two trainers and ends with them; `parameter_server train 127.0.0.1:7473 0` is the
//! first of them; `parameter_server demo` is all three in one process, as tasks of a runtime.
//!
//! A weight is a number of 64 bits that counts millionths, since atomics add integers: so additions of several trainers at the same
//! moment all count, in whatever order they come.

use nonic::{Access, Connection, Device, Exposed, Listener, Rc, RemoteSlice, connect};
use std::error::Error;
use std::net::SocketAddr;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The line that is to be found: so many times x, and so much.
const LINE: [f64; 2] = [3.0, -1.5];
const WEIGHTS: usize = LINE.len();
const ROUNDS: usize = 400;
/// How far a trainer goes in the direction in which it is wrong.
const STEP: f64 = 0.05;
const MILLION: f64 = 1e6;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    match arguments[..] {
        ["serve", address, trainers] => {
            let address: SocketAddr = address.parse()?;
            let listener = Listener::bind(&Device::for_addr(address.ip())?, address)?;
            runtime.block_on(serve(&listener, trainers.parse()?))
        }
        ["train", address, number] => {
            let address: SocketAddr = address.parse()?;
            let device = Device::toward(address.ip())?;
            runtime.block_on(train(&device, address, number.parse()?))
        }
        ["demo"] => runtime.block_on(demo("roce_lo")),
        ["demo", device] => runtime.block_on(demo(device)),
        _ => Err(
            "usage: parameter_server serve ADDRESS:PORT TRAINERS | train ADDRESS:PORT NUMBER | demo [DEVICE]"
                .into(),
        ),
    }
}

/// A server and two trainers: three tasks, one thread.
async fn demo(device: &str) -> Result<()> {
    let device = Device::open(device)?;
    let listener = Listener::bind(&device, "127.0.0.1:0".parse()?)?;
    let address = listener.local_addr();
    tokio::try_join!(
        serve(&listener, 2),
        train(&device, address, 0),
        train(&device, address, 1)
    )?;
    Ok(())
}

/// Has the weights, and nothing to do until the trainers have left.
async fn serve(listener: &Listener, trainers: usize) -> Result<()> {
    let domain = listener.device().domain();
    let rights = Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let weights = domain.lease(WEIGHTS * 8)?.expose(rights)?;
    let mut here: Vec<Connection<Rc>> = Vec::new();
    for _ in 0..trainers {
        let incoming = listener.incoming().await;
        println!("{} trains", incoming.peer_addr().ip());
        let where_they_are = weights.remote().to_string();
        here.push(incoming.accept(domain.pair_builder::<Rc>(), where_they_are.as_bytes())?);
    }
    for trainer in here {
        trainer.closed().await;
    }
    let [slope, offset] = learnt(&weights)?;
    println!("y = {slope:.1} x + {offset:.1}");
    Ok(())
}

fn learnt(weights: &Exposed) -> Result<[f64; WEIGHTS]> {
    let mut bytes = [0; WEIGHTS * 8];
    weights.read_at(0, &mut bytes)?;
    Ok(unpack(&bytes))
}

/// Reads the weights, sees how wrong they are for the points that it knows, and adds to them what makes them better.
async fn train(device: &Device, address: SocketAddr, number: u32) -> Result<()> {
    let domain = device.domain();
    let server = connect(domain.pair_builder::<Rc>(), address, b"")?.await?;
    let weights: RemoteSlice = std::str::from_utf8(server.private_data().trimmed())?.parse()?;
    let mut buffer = domain.lease(WEIGHTS * 8)?;
    for round in 0..ROUNDS {
        buffer = server.read(buffer, weights).await?;
        let [slope, offset] = unpack(&buffer);
        // Each trainer has points of its own, one after the other.
        let x = f64::from(number) * 0.1 + (round % 20) as f64 / 10.0 - 1.0;
        let wrong = LINE[0] * x + LINE[1] - (slope * x + offset);
        // Both additions are under way at once.
        let add = |at: u64, change: f64| {
            let change = (change * STEP * MILLION) as i64;
            server.fetch_add(weights.slice(at..at + 8), change as u64)
        };
        let (slope, offset) = (add(0, wrong * x)?, add(8, wrong)?);
        slope.await?;
        offset.await?;
    }
    server.finish().await?;
    Ok(())
}

/// Weights as they are in memory.
fn unpack(bytes: &[u8]) -> [f64; WEIGHTS] {
    std::array::from_fn(|weight| {
        let word = bytes[weight * 8..][..8].try_into().expect("8 bytes");
        i64::from_ne_bytes(word) as f64 / MILLION
    })
}
