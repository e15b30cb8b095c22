//! Two programs that know an address and a port.
//!
//! `connect serve 127.0.0.1:7471` waits for one client, sends back what it says and ends when it leaves;
//! `connect ask 127.0.0.1:7471 hello` is that client. Both ends need a device with the address: `roce_lo` for
//! loopback, the interface's for others (third argument of `serve`, fourth of `ask`).

use nonic::{Device, Listener, Rc, connect};
use std::error::Error;
use std::net::SocketAddr;

/// The longest message.
const ROOM: usize = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", address] => serve(address.parse()?, "roce_lo"),
        ["serve", address, device] => serve(address.parse()?, device),
        ["ask", address, text] => ask(address.parse()?, text, "roce_lo"),
        ["ask", address, text, device] => ask(address.parse()?, text, device),
        _ => {
            Err("usage: connect serve ADDRESS:PORT [DEVICE] | connect ask ADDRESS:PORT TEXT [DEVICE]".into())
        }
    }
}

/// The passive side: listen, take the request, accept it with a queue pair, serve.
fn serve(address: SocketAddr, device: &str) -> Result<(), Box<dyn Error>> {
    let device = Device::open(device)?;
    let (domain, queue) = (device.domain(), device.completion_queue(16)?);
    let listener = Listener::bind(&device, address)?;
    println!("listening on {}", listener.local_addr());

    let incoming = listener.accept()?;
    println!("{} connects", incoming.peer_addr());
    let mut client = incoming.accept(domain.queue_pair_builder::<Rc>(&queue), b"at your service")?;
    client.pair.rq.recv(1, domain.lease(ROOM)?)?;
    let question = queue.wait(None)?.expect("no time limit was given");
    let length = question.result?;
    client
        .pair
        .sq
        .send(2, domain.lease_from(&question.buffers[0][..length])?)?;
    queue.wait(None)?.expect("no time limit was given").result?;
    client.wait_disconnected(None);
    Ok(())
}

/// The active side: connect a queue pair, use it, leave.
fn ask(address: SocketAddr, text: &str, device: &str) -> Result<(), Box<dyn Error>> {
    let device = Device::open(device)?;
    let (domain, queue) = (device.domain(), device.completion_queue(16)?);
    let mut server = connect(domain.queue_pair_builder::<Rc>(&queue), address, b"a question")?.wait()?;

    server.pair.rq.recv(1, domain.lease(ROOM)?)?;
    server.pair.sq.send(2, domain.lease_from(text.as_bytes())?)?;
    for _ in 0..2 {
        let done = queue.wait(None)?.expect("no time limit was given");
        let length = done.result?;
        if done.id == 1 {
            println!("{}", String::from_utf8_lossy(&done.buffers[0][..length]));
        }
    }
    server.disconnect();
    Ok(())
}
