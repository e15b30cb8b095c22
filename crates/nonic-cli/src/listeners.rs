//! The listeners of a server: at a port of one address, or of every address this host has.

use crate::local_gid::{DeviceChoice, LocalGid, OpenDevices, interfaces};
use anyhow::{Context, Result};
use nonic::{Device, Incoming, ListenError, Listener};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::thread::Thread;

/// The listeners of a server; each device has its own.
#[derive(Debug)]
pub(crate) struct Listeners {
    listeners: Vec<(Device, Listener)>,
    /// The address, if there is only one.
    pub(crate) local: Option<LocalGid>,
}

impl Listeners {
    /// Listens at an address, or at a port of every address of the chosen devices.
    pub(crate) fn open(
        bind: Option<SocketAddr>,
        default_port: u16,
        choice: &DeviceChoice,
        devices: &OpenDevices,
    ) -> Result<Self> {
        // A wrong setting is reported as it is: another address would not help.
        interfaces()?;
        let addresses = match bind {
            Some(address) => vec![address],
            None => [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()]
                .map(|ip| SocketAddr::new(ip, default_port))
                .to_vec(),
        };
        let one = bind.filter(|address| !address.ip().is_unspecified());
        let local = one.map(|address| devices.find(choice, address)).transpose();
        let local = local.map_err(|error| match &choice.device {
            // What is wrong is the device, then.
            Some(_) => error,
            None if error.chain().any(|cause| cause.is::<nonic::OpenError>()) => error,
            None => error.context(no_listening(bind, default_port)),
        })?;
        let devices = match &local {
            Some(local) => vec![local.device.clone()],
            None => devices.open_all(choice)?,
        };
        let mut listeners = Vec::new();
        let mut port = addresses[0].port();
        for device in devices {
            for address in &addresses {
                let mut address = *address;
                address.set_port(port);
                match Listener::bind(&device, address) {
                    Ok(listener) => {
                        // Any free one is the same one everywhere.
                        port = listener.local_addr().port();
                        listeners.push((device.clone(), listener));
                    }
                    // An interface without addresses of this family.
                    Err(ListenError::NoAddress(_)) if local.is_none() => {}
                    Err(error) => return Err(error).with_context(|| no_listening(bind, default_port)),
                }
            }
        }
        anyhow::ensure!(!listeners.is_empty(), "no device has an address to listen at");
        Ok(Listeners { listeners, local })
    }

    /// All of them, each with its device.
    pub(crate) fn all(&self) -> &[(Device, Listener)] {
        &self.listeners
    }

    /// Where it listens, for people and clients.
    pub(crate) fn address(&self) -> String {
        match (&self.local, &self.listeners[..]) {
            (Some(_), [(_, listener), ..]) => listener.local_addr().to_string(),
            (_, listeners) => format!("*:{}", listeners[0].1.local_addr().port()),
        }
    }

    /// The devices it listens at.
    pub(crate) fn devices(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .listeners
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
            for (device, listener) in &self.listeners {
                if let Poll::Ready(incoming) = listener.poll_incoming(&mut context) {
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

fn no_listening(bind: Option<SocketAddr>, default_port: u16) -> String {
    match bind {
        Some(address) => format!("cannot listen on {address}; choose another with --bind"),
        None => format!("cannot listen on port {default_port}; choose another with --bind IP:PORT"),
    }
}
