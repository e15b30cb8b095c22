//! A work queue that many workers share, without a dispatcher: a worker takes the next task with one atomic, reads it
//! by a READ and writes its result by a WRITE. The server's program does nothing in between; it sees the progress in
//! its memory, and is told when a worker leaves.
//!
//! `work_queue serve 127.0.0.1:7474` serves until all tasks are done; `work_queue work 127.0.0.1:7474` is a worker, of which there may
//! be any number; `work_queue demo` has three in one process. The tasks are numbers, the results whether they are prime.

use nonic::{Access, ConnectError, Connection, Device, Domain, Exposed, Listener, Rc, RemoteSlice, connect};
use std::error::Error;
use std::net::SocketAddr;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The numbers to be looked at.
const FIRST: u64 = 1_000_000;
const TASKS: u64 = 300;
/// Memory of the server: the number of tasks that were taken, that of those that are done, then a task and a result for each.
const TAKEN: u64 = 0;
const DONE: u64 = 8;
const ENTRIES: u64 = 16;
const ENTRY: u64 = 16;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", address] => {
            let address: SocketAddr = address.parse()?;
            serve(Listener::bind(&Device::for_addr(address.ip())?, address)?)
        }
        ["work", address] => {
            let address: SocketAddr = address.parse()?;
            let done = work(&Device::toward(address.ip())?, address)?;
            println!("{done} tasks done");
            Ok(())
        }
        ["demo"] => demo("roce_lo"),
        ["demo", device] => demo(device),
        _ => Err("usage: work_queue serve ADDRESS:PORT | work ADDRESS:PORT | demo [DEVICE]".into()),
    }
}

/// A server and three workers, on one device.
fn demo(device: &str) -> Result<()> {
    let device = Device::open(device)?;
    let listener = Listener::bind(&device, "127.0.0.1:0".parse()?)?;
    let address = listener.local_addr();
    let workers = [1, 2, 3].map(|_| {
        let device = device.clone();
        std::thread::spawn(move || work(&device, address).map_err(|error| error.to_string()))
    });
    serve(listener)?;
    let mut all = 0;
    for worker in workers {
        all += worker.join().expect("a worker does not panic")?;
    }
    println!("{all} tasks done by three workers");
    Ok(())
}

/// Lays out the tasks, lets workers at them and waits until all are done.
fn serve(listener: Listener) -> Result<()> {
    let domain = listener.device().domain();
    let rights = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let board = domain.lease((ENTRIES + TASKS * ENTRY) as usize)?.expose(rights)?;
    for task in 0..TASKS {
        board.write_at((ENTRIES + task * ENTRY) as usize, &(FIRST + task).to_ne_bytes())?;
    }
    let mut workers: Vec<Connection<Rc>> = Vec::new();
    while board.fetch_add(DONE as usize, 0)? < TASKS {
        // New workers may come at any time; between two looks there is nothing else to do.
        if let Some(incoming) = listener.accept_within(std::time::Duration::from_millis(10)) {
            let where_it_is = board.remote().to_string();
            workers.push(incoming.accept(domain.pair_builder::<Rc>(), where_it_is.as_bytes())?);
        }
        let before = workers.len();
        workers.retain(|worker| worker.closed().reason().is_none());
        if workers.len() < before {
            println!("a worker has left, of {before}");
        }
    }
    // Workers that come now are refused: there is nothing left to do.
    drop(listener);
    println!("{} of {TASKS} numbers are prime", primes(&board)?);
    // They find nothing left to take, and leave.
    workers.iter().for_each(|worker| {
        worker.closed().wait(None);
    });
    Ok(())
}

fn primes(board: &Exposed) -> Result<usize> {
    let mut count = 0;
    for task in 0..TASKS {
        let mut result = [0; 8];
        board.read_at((ENTRIES + task * ENTRY + 8) as usize, &mut result)?;
        count += usize::from(result == 1_u64.to_ne_bytes());
    }
    Ok(count)
}

/// Takes tasks until there are none; how many it did.
fn work(device: &Device, address: SocketAddr) -> Result<u64> {
    let domain: Domain = device.domain();
    let server = match connect(domain.pair_builder::<Rc>(), address, b"")?.wait() {
        // It came too late.
        Err(ConnectError::Rejected { .. }) => return Ok(0),
        connected => connected?,
    };
    let board: RemoteSlice = std::str::from_utf8(server.private_data().trimmed())?.parse()?;
    let word = |at: u64| board.slice(at..at + 8);
    let mut buffer = domain.lease(8)?;
    let mut done = 0;
    loop {
        // No other worker gets this number: each atomic returns another previous value.
        let task = server.fetch_add(word(TAKEN), 1)?.wait()?;
        if task >= TASKS {
            break;
        }
        let entry = ENTRIES + task * ENTRY;
        buffer = server.read(buffer, word(entry)).wait()?;
        let number = u64::from_ne_bytes(buffer[..].try_into()?);
        buffer.copy_from_slice(&u64::from(is_prime(number)).to_ne_bytes());
        // The atomic comes after the result: requests of one connection are executed in their order.
        let written = server.write(buffer, word(entry + 8));
        server.fetch_add(word(DONE), 1)?.wait()?;
        buffer = written.wait()?;
        done += 1;
    }
    server.finish().wait()?;
    Ok(done)
}

fn is_prime(number: u64) -> bool {
    let divisors = (2..).take_while(|divisor| divisor * divisor <= number);
    number > 1 && divisors.into_iter().all(|divisor| number % divisor != 0)
}
