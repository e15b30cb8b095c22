//! Direct access in the simulator: NICs that reach each other's memory, as those of one host do.
//!
//! [`SharedHost`] keeps what NICs publish and moves bytes between their regions. It checks what the engine's
//! implementation must check: the target's queue pair, its peer, the number it began with, rights, and the key's domain
//! and range. It also refuses at random, even in the middle of a request. What the kernel could do beside another
//! thread is atomic here; what happens between two pieces of a request is up to the fabric's clock.
//!
//! A NIC that breaks the contract of [`DirectAccess`] or [`KeyPublisher`] makes it panic, and so fails the run.

use nonic_core::{Direct, DirectAccess, DirectRequest, Key, KeyPublisher, Nic, PublishedKey, Qpn, Target};
use nonic_netem::Prng;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which NICs reach each other, and how reliably.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DirectProfile {
    /// How many pairs of addresses reach each other, in percent.
    pub reach_percent: u64,
    /// How many pieces are refused for no reason, in percent.
    pub refuse_percent: u64,
}

/// What NICs on one host know of each other.
#[derive(Clone)]
pub struct SharedHost(Arc<Mutex<State>>);

struct State {
    profile: DirectProfile,
    prng: Prng,
    /// Which address reaches which, as it was drawn at the first contact.
    reach: BTreeMap<(IpAddr, IpAddr), bool>,
    targets: HashMap<(IpAddr, Qpn), Published>,
    /// By the NIC and the key.
    keys: HashMap<(u64, u32), PublishedKey>,
    attached: u64,
    requests: u64,
    bytes: Vec<u8>,
}

struct Published {
    nic: u64,
    target: Target,
    withdrawn: bool,
}

impl SharedHost {
    /// A host without NICs.
    pub fn new(profile: DirectProfile, prng: Prng) -> Self {
        SharedHost(Arc::new(Mutex::new(State {
            profile,
            prng,
            reach: BTreeMap::new(),
            targets: HashMap::new(),
            keys: HashMap::new(),
            attached: 0,
            requests: 0,
            bytes: Vec::new(),
        })))
    }

    /// Other NICs on the host reach this NIC, and it them, from now until it is dropped.
    pub fn attach(&self, nic: &mut Nic) {
        let number = {
            let mut state = self.lock();
            state.attached += 1;
            state.attached
        };
        let keys = Arc::new(Keys {
            host: self.clone(),
            nic: number,
        });
        assert!(nic.keys().publish_to(keys), "a NIC is attached once");
        nic.set_direct(Box::new(Attached {
            host: self.clone(),
            nic: number,
            own: HashMap::new(),
        }));
    }

    /// How many requests were executed without packets.
    pub fn requests(&self) -> u64 {
        self.lock().requests
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A NIC's access to the host.
struct Attached {
    host: SharedHost,
    nic: u64,
    /// At which address each of its queue pairs was published.
    own: HashMap<Qpn, IpAddr>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut state = self.host.lock();
        state.targets.retain(|_, published| published.nic != self.nic);
        state.keys.retain(|(nic, _), _| *nic != self.nic);
    }
}

impl DirectAccess for Attached {
    fn execute(&mut self, request: &DirectRequest<'_>) -> Direct {
        let executed = self.host.lock().execute(request);
        executed.unwrap_or(Direct::Refused)
    }

    fn publish(&mut self, qpn: Qpn, target: Option<&Target>) {
        let mut state = self.host.lock();
        let Some(target) = target else {
            let published = self
                .own
                .get(&qpn)
                .and_then(|ip| state.targets.get_mut(&(*ip, qpn)));
            let published = published.expect("what is withdrawn was published");
            assert!(!published.withdrawn, "withdrawn twice");
            published.withdrawn = true;
            return;
        };
        self.own.insert(qpn, target.local);
        let published = Published {
            nic: self.nic,
            target: *target,
            withdrawn: false,
        };
        state.targets.insert((target.local, qpn), published);
    }
}

/// Publishes a NIC's keys on the host.
struct Keys {
    host: SharedHost,
    nic: u64,
}

impl KeyPublisher for Keys {
    fn publish(&self, key: &Key) {
        let before = self
            .host
            .lock()
            .keys
            .insert((self.nic, key.value()), PublishedKey::of(key));
        assert!(before.is_none(), "a key is published once");
    }

    fn withdraw(&self, key: &Key) -> bool {
        let withdrawn = self.host.lock().keys.remove(&(self.nic, key.value()));
        assert!(withdrawn.is_some(), "what is withdrawn was published");
        true
    }
}

impl State {
    fn execute(&mut self, request: &DirectRequest<'_>) -> Option<Direct> {
        let between = (
            request.local.min(request.remote),
            request.local.max(request.remote),
        );
        let reaches = match self.reach.get(&between) {
            Some(reaches) => *reaches,
            None => {
                let reaches = self.prng.percent(self.profile.reach_percent);
                self.reach.insert(between, reaches);
                reaches
            }
        };
        if !reaches || self.prng.percent(self.profile.refuse_percent) {
            return None;
        }
        let published = self.targets.get(&(request.remote, request.target))?;
        let key = self.keys.get(&(published.nic, request.rkey))?;
        if published.withdrawn {
            return None;
        }
        let direct = key.execute(&published.target, request, &mut self.bytes);
        if direct == Direct::Refused {
            return None;
        }
        self.requests += u64::from(request.left as usize == request.bytes.len());
        Some(direct)
    }
}
