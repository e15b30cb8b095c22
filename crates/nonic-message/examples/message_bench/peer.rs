//! The process at the other end: executes one command, then waits for the next.

use super::raw::Raw;
use super::{Outcome, tcp};
use nonic::{Device, Listener};
use nonic_message::{Channel, Error, Message, Node, Options};
use std::net::{SocketAddr, TcpListener};

/// Serves until the other process ends.
pub(crate) fn serve(address: SocketAddr, device: Option<&str>) -> Outcome<()> {
    let device = match device {
        Some(name) => Device::open(name)?,
        None => Device::for_addr(address.ip())?,
    };
    let node = Node::new(&device, Options::default());
    let any = SocketAddr::new(address.ip(), 0);
    let (messages, verbs) = (node.listen(address)?, Listener::bind(&device, any)?);
    let sockets = TcpListener::bind(any)?;
    println!("{}", messages.local_addr());
    let mut control = messages.accept().wait()?;
    let mut channels: Vec<Channel> = Vec::new();
    let mut raw: Option<Raw> = None;
    let mut socket = None;
    let mut slots = Vec::new();
    while let Some(command) = control.recv().wait()? {
        let words: Vec<&str> = std::str::from_utf8(&command)?.split(' ').collect();
        let number = |at: usize| -> Outcome<usize> { Ok(words.get(at).ok_or("a number")?.parse()?) };
        match words[0] {
            "where" => {
                let answer = format!("{} {}", verbs.local_addr(), sockets.local_addr()?);
                control.send(answer.into_bytes()).wait()?;
            }
            "tcp" => socket = Some(tcp::accept(&sockets)?),
            "tcp-echo" => tcp::echo(socket.as_mut().ok_or("not connected")?, number(1)?, number(2)?)?,
            "raw" => {
                let mut accepted = Raw::accept(&device, verbs.accept()?)?;
                accepted.prepare()?;
                slots = accepted.slots()?;
                let places: Vec<String> = slots.iter().map(|slot| slot.remote().to_string()).collect();
                control.send(places.join(" ").into_bytes()).wait()?;
                raw = Some(accepted);
            }
            "raw-echo" => raw
                .as_mut()
                .ok_or("not connected")?
                .echo(number(1)?, number(2)?)?,
            "channel" => {
                let mut channel = messages.accept().wait()?;
                let ready = channel.recv().wait()?.ok_or("the peer left")?;
                channel.send(ready).wait()?;
                channels.push(channel);
            }
            "forget" => channels.clear(),
            "echo" => {
                let channel = channels.last_mut().ok_or("no channel")?;
                take(channel, number(1)?, |channel, message| {
                    channel.send(message).wait()
                })?;
            }
            "sink" => {
                let channel = channels.last_mut().ok_or("no channel")?;
                take(channel, number(1)?, |_, _| Ok(()))?;
                channel.send(b"all").wait()?;
            }
            "ack" => {
                let channel = channels.get_mut(number(1)?).ok_or("no channel")?;
                take(channel, number(2)?, |channel, _| channel.send(b".").wait())?;
            }
            other => return Err(format!("unknown command {other}").into()),
        }
    }
    drop(slots);
    Ok(())
}

/// Takes so many messages, and does something about each.
fn take(
    channel: &mut Channel,
    count: usize,
    mut about: impl FnMut(&mut Channel, Message) -> Result<(), Error>,
) -> Outcome<()> {
    for _ in 0..count {
        let message = channel.recv().wait()?.ok_or("the peer left")?;
        about(channel, message)?;
    }
    Ok(())
}
