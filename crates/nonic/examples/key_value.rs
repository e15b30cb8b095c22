//! A key-value store as RDMA systems build them: a GET is a READ of the server's memory, of which the server's program knows nothing;
//! a PUT is a message, so that one thread decides the order of changes.
//!
//! `key_value serve 127.0.0.1:7472` serves one client after the other; `key_value put 127.0.0.1:7472 colour blue` and
//! `key_value get 127.0.0.1:7472 colour` are clients; `key_value demo` is both in one process.
//!
//! The table has slots of 64 bytes. A slot is found by the hash of its key, and is changed under a version at both of
//! its ends: a client that reads a slot during a change sees two different versions, or odd ones, and reads again.

use nonic::{Access, Connection, Device, Domain, Exposed, Listener, Rc, RemoteSlice, connect};
use std::collections::hash_map::DefaultHasher;
use std::error::Error;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SLOTS: u64 = 1024;
const SLOT: usize = 64;
/// What a slot has room for, between the versions: the hash of the key, the length of the value, and the value.
const LONGEST_VALUE: usize = SLOT - 8 - 8 - 1 - 8;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", address] => serve(&Listener::bind(&device(address)?, address.parse()?)?, usize::MAX),
        ["put", address, key, value] => client(address)?.put(key, value),
        ["get", address, key] => show(key, client(address)?.get(key)?),
        ["demo"] => demo("roce_lo"),
        ["demo", device] => demo(device),
        _ => Err(
            "usage: key_value serve ADDRESS:PORT | put ADDRESS:PORT KEY VALUE | get ADDRESS:PORT KEY | demo [DEVICE]"
                .into(),
        ),
    }
}

fn demo(device: &str) -> Result<()> {
    let device = Device::open(device)?;
    let listener = Listener::bind(&device, "127.0.0.1:0".parse()?)?;
    let address = listener.local_addr();
    let server = std::thread::spawn(move || serve(&listener, 1).map_err(|error| error.to_string()));
    let client = Client::connect(&device, address)?;
    client.put("colour", "blue")?;
    client.put("colour", "green")?;
    show("colour", client.get("colour")?)?;
    show("shape", client.get("shape")?)?;
    drop(client);
    Ok(server.join().expect("the server does not panic")?)
}

fn show(key: &str, value: Option<String>) -> Result<()> {
    println!("{key} = {}", value.as_deref().unwrap_or("(nothing)"));
    Ok(())
}

/// The device that has an address.
fn device(address: &str) -> Result<Device> {
    let address: SocketAddr = address.parse()?;
    Ok(Device::for_addr(address.ip())?)
}

/// A client of the server at an address.
fn client(address: &str) -> Result<Client> {
    let address: SocketAddr = address.parse()?;
    Client::connect(&Device::toward(address.ip())?, address)
}

/// Where a key's slot begins.
fn slot_of(key: &str) -> (u64, u64) {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    // Zero means that a slot is empty.
    let hash = hasher.finish().max(1);
    (hash, hash % SLOTS * SLOT as u64)
}

/// Lets clients read the table, and changes it as they ask.
fn serve(listener: &Listener, clients: usize) -> Result<()> {
    let domain = listener.device().domain();
    let table = domain.lease(SLOTS as usize * SLOT)?.expose(Access::REMOTE_READ)?;
    for _ in 0..clients {
        let incoming = listener.accept()?;
        let peer = incoming.peer_addr();
        let client = incoming.accept(domain.pair_builder::<Rc>(), table.remote().to_string().as_bytes())?;
        println!("{peer} is here");
        // It leaves when it likes: that is no error.
        let left = serve_client(&domain, &table, &client);
        println!(
            "{peer} has left: {}",
            left.err().map_or_else(String::new, |error| error.to_string())
        );
    }
    Ok(())
}

/// A PUT is the key, a zero byte and the value; the answer says that it is done.
fn serve_client(domain: &Domain, table: &Exposed, client: &Connection<Rc>) -> Result<()> {
    let mut receive = client.recv(domain.lease(256)?);
    loop {
        let request = receive.wait()?;
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        // The next one may come as soon as this one is answered.
        receive = client.recv(request.buffers);
        let (key, value) = text.split_once('\0').ok_or("not a PUT")?;
        change(table, key, value.as_bytes())?;
        client.send_bytes(b"done").wait()?;
    }
}

fn change(table: &Exposed, key: &str, value: &[u8]) -> Result<()> {
    let (hash, at) = slot_of(key);
    let at = at as usize;
    let mut version = [0; 8];
    table.read_at(at, &mut version)?;
    let version = u64::from_ne_bytes(version);
    let end = at + SLOT - 8;
    // Odd at the beginning until the end agrees with it.
    table.write_at(at, &(version + 1).to_ne_bytes())?;
    let mut content = [0; SLOT - 16];
    content[..8].copy_from_slice(&hash.to_ne_bytes());
    content[8] = value.len() as u8;
    content[9..9 + value.len()].copy_from_slice(value);
    table.write_at(at + 8, &content)?;
    table.write_at(end, &(version + 2).to_ne_bytes())?;
    Ok(table.write_at(at, &(version + 2).to_ne_bytes())?)
}

struct Client {
    domain: Domain,
    server: Connection<Rc>,
    table: RemoteSlice,
}

impl Client {
    fn connect(device: &Device, address: SocketAddr) -> Result<Self> {
        let domain = device.domain();
        let server = connect(domain.pair_builder::<Rc>(), address, b"")?.wait()?;
        let table = std::str::from_utf8(server.private_data().trimmed())?.parse()?;
        Ok(Client {
            domain,
            server,
            table,
        })
    }

    fn put(&self, key: &str, value: &str) -> Result<()> {
        if value.len() > LONGEST_VALUE {
            return Err(format!("a value has at most {LONGEST_VALUE} bytes").into());
        }
        let answer = self.server.recv(self.domain.lease(8)?);
        self.server
            .send_bytes(format!("{key}\0{value}").as_bytes())
            .wait()?;
        answer.wait()?;
        Ok(())
    }

    fn get(&self, key: &str) -> Result<Option<String>> {
        let (hash, at) = slot_of(key);
        let mut buffer = self.domain.lease(SLOT)?;
        loop {
            let slot = self.table.slice(at..at + SLOT as u64);
            buffer = self.server.read(buffer, slot).wait()?;
            let word = |at: usize| u64::from_ne_bytes(buffer[at..at + 8].try_into().expect("8 bytes"));
            let (first, last) = (word(0), word(SLOT - 8));
            if first != last || first % 2 == 1 {
                continue;
            }
            let value = &buffer[17..17 + usize::from(buffer[16])];
            return Ok((word(8) == hash).then(|| String::from_utf8_lossy(value).into_owned()));
        }
    }
}
