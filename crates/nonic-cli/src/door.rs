//! Where a server waits for clients: a port of one address, or of every address this host has.

use crate::exchange::DEFAULT_PORT;
use crate::site::{Choice, Site, Sites};
use anyhow::{Context, Result};
use nonic::{Device, Incoming, ListenError, Listener};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::thread::Thread;

/// The listeners of a server; each device has its own.
#[derive(Debug)]
pub(crate) struct Door {
    entrances: Vec<(Device, Listener)>,
    /// The site, if there is only one.
    pub(crate) site: Option<Site>,
}

impl Door {
    /// Listens at an address, or at every one of the chosen devices.
    pub(crate) fn open(bind: Option<SocketAddr>, choice: &Choice, sites: &Sites) -> Result<Self> {
        let addresses = match bind {
            Some(address) => vec![address],
            None => [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()]
                .map(|ip| SocketAddr::new(ip, DEFAULT_PORT))
                .to_vec(),
        };
        let one = bind.filter(|address| !address.ip().is_unspecified());
        let site = one.map(|address| sites.find(choice, address)).transpose();
        let site = site.with_context(|| no_listening(bind))?;
        let devices = match &site {
            Some(site) => vec![site.device.clone()],
            None => sites.open_all(choice)?,
        };
        let mut entrances = Vec::new();
        let mut port = addresses[0].port();
        for device in devices {
            for address in &addresses {
                let mut address = *address;
                address.set_port(port);
                match Listener::bind(&device, address) {
                    Ok(listener) => {
                        // Any free one is the same one everywhere.
                        port = listener.local_addr().port();
                        entrances.push((device.clone(), listener));
                    }
                    // An interface without addresses of this family.
                    Err(ListenError::NoAddress(_)) if site.is_none() => {}
                    Err(error) => return Err(error).with_context(|| no_listening(bind)),
                }
            }
        }
        anyhow::ensure!(!entrances.is_empty(), "no device has an address to listen at");
        Ok(Door { entrances, site })
    }

    /// Where it listens, for people and clients.
    pub(crate) fn address(&self) -> String {
        match (&self.site, &self.entrances[..]) {
            (Some(_), [(_, listener), ..]) => listener.local_addr().to_string(),
            (_, entrances) => format!("*:{}", entrances[0].1.local_addr().port()),
        }
    }

    /// The devices it listens at.
    pub(crate) fn devices(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .entrances
            .iter()
            .map(|(device, _)| device.netdev().device_name())
            .collect();
        names.dedup();
        names
    }

    /// Waits for the next client, at any of them.
    pub(crate) fn next(&self) -> (Device, Incoming) {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = std::task::Context::from_waker(&waker);
        loop {
            for (device, listener) in &self.entrances {
                if let Poll::Ready(incoming) = listener.poll_next(&mut context) {
                    return (device.clone(), incoming);
                }
            }
            std::thread::park();
        }
    }
}

/// Wakes a thread that waits for several things.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn no_listening(bind: Option<SocketAddr>) -> String {
    match bind {
        Some(address) => format!("cannot listen on {address}; choose another with --bind"),
        None => format!("cannot listen on port {DEFAULT_PORT}; choose another with --bind IP:PORT"),
    }
}
