//! The process at the other end: does what it is told, then waits for the next command.

use super::Outcome;
use super::raw::Raw;
use nonic::{Device, Listener};
use nonic_message::{Channel, Node, Options};
use std::net::SocketAddr;

/// Serves until the other process ends.
pub(crate) fn serve(name: &str) -> Outcome<()> {
    let device = Device::open(name)?;
    let node = Node::new(&device, Options::default());
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let (messages, verbs) = (node.listen(any)?, Listener::bind(&device, any)?);
    println!("{} {}", messages.local_addr(), verbs.local_addr());
    let mut control = messages.accept().wait()?;
    let mut channels: Vec<Channel> = Vec::new();
    let mut raw: Option<Raw> = None;
    let mut slots = Vec::new();
    while let Some(command) = control.recv().wait()? {
        let words: Vec<&str> = std::str::from_utf8(&command)?.split(' ').collect();
        let number = |at: usize| -> Outcome<usize> { Ok(words.get(at).ok_or("a number")?.parse()?) };
        match words[0] {
            "raw" => {
                let mut accepted = Raw::accept(&device, verbs.accept()?)?;
                accepted.prepare()?;
                slots = accepted.slots()?;
                let places: Vec<String> = slots.iter().map(|slot| slot.remote().to_string()).collect();
                control.send(places.join(" ").into_bytes()).wait()?;
                raw = Some(accepted);
            }
            "raw-echo" => raw.as_mut().ok_or("not connected")?.echo(number(1)?)?,
            "channel" => {
                let mut channel = messages.accept().wait()?;
                let ready = channel.recv().wait()?.ok_or("the peer left")?;
                channel.send(ready).wait()?;
                channels.push(channel);
            }
            "forget" => channels.clear(),
            "echo" => {
                let channel = channels.last_mut().ok_or("no channel")?;
                for _ in 0..number(1)? {
                    let message = channel.recv().wait()?.ok_or("the peer left")?;
                    channel.send(message).wait()?;
                }
            }
            "sink" => {
                let channel = channels.last_mut().ok_or("no channel")?;
                for _ in 0..number(1)? {
                    channel.recv().wait()?.ok_or("the peer left")?;
                }
                channel.send(b"all").wait()?;
            }
            "ack" => {
                let channel = channels.get_mut(number(1)?).ok_or("no channel")?;
                for _ in 0..number(2)? {
                    channel.recv().wait()?.ok_or("the peer left")?;
                    channel.send(b".").wait()?;
                }
            }
            other => return Err(format!("unknown command {other}").into()),
        }
    }
    drop(slots);
    Ok(())
}
