//! A client that survives what networks and peers do, beside one that does not: it numbers what it sends, and after an error connects
//! again and sends the last number once more. The server takes each number once.
//!
//! Try both with a network that is gone for five seconds:
//!
//! ```console
//! $ NONIC_FAULTS=loss=100%,from=300ms,until=5s cargo run -p nonic --example reconnect -- demo careless
//! $ NONIC_FAULTS=loss=100%,from=300ms,until=5s cargo run -p nonic --example reconnect -- demo careful
//! ```
//!
//! `reconnect serve 127.0.0.1:7475` and `reconnect send 127.0.0.1:7475 careful` are the two sides as two programs.

use nonic::{ConnectOptions, Connection, Device, Domain, Listener, Rc, connect};
use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What is sent, and how quickly.
const MESSAGES: u64 = 50;
const PAUSE: Duration = Duration::from_millis(10);
/// For how long a careful client tries to get back.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", address] => {
            let address: SocketAddr = address.parse()?;
            serve(&Listener::bind(&Device::for_addr(address.ip())?, address)?)
        }
        ["send", address, manner] => {
            let address: SocketAddr = address.parse()?;
            send(&Device::toward(address.ip())?, address, manner == "careful")
        }
        ["demo", manner] => demo(manner == "careful"),
        _ => Err("usage: reconnect serve ADDRESS:PORT | send ADDRESS:PORT careful|careless | demo careful|careless".into()),
    }
}

/// Both sides in one process, each with a device of its own.
fn demo(careful: bool) -> Result<()> {
    let listener = Listener::bind(&Device::open("roce_lo")?, "127.0.0.1:0".parse()?)?;
    let address = listener.local_addr();
    let server = std::thread::spawn(move || serve(&listener).map_err(|error| error.to_string()));
    send(&Device::open("roce_lo")?, address, careful)?;
    server.join().expect("the server does not panic")?;
    Ok(())
}

/// Takes numbers in their order, each once, over as many connections as it takes. One client at a time.
fn serve(listener: &Listener) -> Result<()> {
    let domain = listener.device().domain();
    let (mut taken, mut connections) = (0, 0);
    while taken < MESSAGES {
        // The server would wait for ever for a client whose disconnect was lost: keepalive probes silent ones.
        let options = ConnectOptions {
            keepalive: Some(Duration::from_secs(1)),
            ..ConnectOptions::default()
        };
        let client = listener
            .accept()?
            .accept_with(domain.pair_builder::<Rc>(), &options, b"")?;
        connections += 1;
        let mut receive = client.recv(domain.lease(8)?);
        // An error ends this connection and nothing else: the client will come again.
        while let Ok(received) = receive.wait() {
            // The next one is posted before the client is told that it may send it.
            receive = client.recv(domain.lease(8)?);
            let number = u64::from_ne_bytes(received.bytes().try_into()?);
            if number == taken + 1 {
                taken = number;
            }
            if client.send_bytes(&taken.to_ne_bytes()).wait().is_err() || taken == MESSAGES {
                break;
            }
        }
    }
    println!("{taken} messages, each taken once, over {connections} connections");
    Ok(())
}

/// Sends numbers, each until the server says that it has it.
fn send(device: &Device, server: SocketAddr, careful: bool) -> Result<()> {
    let domain = device.domain();
    let mut connection = join(&domain, server)?;
    for number in 1..=MESSAGES {
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = hand_over(&domain, &connection, number) {
            if !careful || Instant::now() > deadline {
                return Err(error);
            }
            println!("{number}: {error}; connecting again");
            connection = join_again(&domain, server, deadline)?;
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn join(domain: &Domain, server: SocketAddr) -> Result<Connection<Rc>> {
    Ok(connect(domain.pair_builder::<Rc>(), server, b"")?.wait()?)
}

fn join_again(domain: &Domain, server: SocketAddr, deadline: Instant) -> Result<Connection<Rc>> {
    loop {
        std::thread::sleep(10 * PAUSE);
        match join(domain, server) {
            Err(_) if Instant::now() < deadline => {}
            outcome => return outcome,
        }
    }
}

/// Sends one number and waits until the server has it. The receive for the answer is posted first, so that the answer finds it.
fn hand_over(domain: &Domain, connection: &Connection<Rc>, number: u64) -> Result<()> {
    let answer = connection.recv(domain.lease(8)?);
    connection.send_bytes(&number.to_ne_bytes()).wait()?;
    let answer = answer.wait()?;
    match u64::from_ne_bytes(answer.bytes().try_into()?) {
        taken if taken == number => Ok(()),
        taken => Err(format!("the server has {taken}").into()),
    }
}
