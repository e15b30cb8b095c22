//! A host whose NICs reach each other's memory: what the engine does with the kernel's help, in a few lines.

use super::{Node, Pair, Setup};
use nonic_core::{Access, Direct, DirectAccess, DirectRequest, Key, KeyPublisher, PublishedKey, Qpn, Target};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Clone, Default)]
pub struct SharedHost(Arc<Mutex<SharedState>>);

#[derive(Default)]
pub struct SharedState {
    /// What was published, by address and number.
    pub targets: HashMap<(IpAddr, Qpn), Published>,
    pub keys: HashMap<(IpAddr, u32), PublishedKey>,
    /// Refuses whatever comes after so many pieces.
    pub refuses_after: Option<usize>,
    /// A peer was stopped in the middle of an access: a NIC that withdraws a key hears that the access may go on.
    pub stopped: bool,
    /// What was asked for: piece by piece, with the queue pair that asked, and whether it was done.
    pub asked: Vec<(Qpn, usize, Direct)>,
    /// Requests that were to be executed together, and how many of them were.
    pub runs: Vec<(usize, usize)>,
    /// What another thread does while the next piece is executed.
    pub meanwhile: Option<Box<dyn FnOnce() + Send>>,
}

#[derive(Copy, Clone, Debug)]
pub struct Published {
    pub target: Target,
    pub withdrawn: bool,
}

impl SharedHost {
    /// Two connected nodes on one host, with lanes to each other.
    pub fn pair(setup: &Setup) -> (Pair, SharedHost) {
        let mut pair = Pair::new(&Setup {
            lanes: true,
            ..setup.clone()
        });
        let host = SharedHost::default();
        host.join(&mut pair.a);
        host.join(&mut pair.b);
        (pair, host)
    }

    /// The node's NIC and keys are reachable from now on.
    pub fn join(&self, node: &mut Node) {
        let way = Way {
            host: self.clone(),
            ip: node.ip,
        };
        assert!(node.keys().publish_to(Arc::new(way.clone())));
        node.nic.set_direct(Box::new(way));
    }

    pub fn state(&self) -> MutexGuard<'_, SharedState> {
        self.0.lock().expect("no test panics while it holds the lock")
    }

    /// What a node's queue pair is published as.
    pub fn published(&self, node: &Node, qpn: Qpn) -> Option<Target> {
        let state = self.state();
        let entry = state
            .targets
            .get(&(node.ip, qpn))
            .filter(|entry| !entry.withdrawn);
        entry.map(|entry| entry.target)
    }

    /// Whether a node's key is.
    pub fn has_key(&self, node: &Node, key: u32) -> bool {
        self.state().keys.contains_key(&(node.ip, key))
    }

    /// How many pieces were asked for, and how many of them were done.
    pub fn pieces(&self) -> (usize, usize) {
        let state = self.state();
        let done = state
            .asked
            .iter()
            .filter(|(_, _, direct)| *direct != Direct::Refused);
        (state.asked.len(), done.count())
    }
}

#[derive(Clone)]
struct Way {
    host: SharedHost,
    ip: IpAddr,
}

impl DirectAccess for Way {
    fn execute(&mut self, request: &DirectRequest<'_>) -> Direct {
        assert_eq!(request.local, self.ip, "a NIC asks on its own behalf");
        let mut state = self.host.state();
        let direct = state.execute(request);
        state.asked.push((request.own, request.bytes.len(), direct));
        let meanwhile = state.meanwhile.take();
        drop(state);
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        direct
    }

    fn execute_run(&mut self, requests: &[DirectRequest<'_>]) -> usize {
        let executed = |request: &&DirectRequest<'_>| self.execute(request) != Direct::Refused;
        let done = requests.iter().take_while(executed).count();
        self.host.state().runs.push((requests.len(), done));
        done
    }

    fn publish(&mut self, qpn: Qpn, target: Option<&Target>) {
        let mut state = self.host.state();
        let place = (self.ip, qpn);
        match (target, state.targets.get_mut(&place)) {
            (Some(target), _) => {
                assert_eq!(target.local, self.ip, "a NIC publishes its own");
                let entry = Published {
                    target: *target,
                    withdrawn: false,
                };
                state.targets.insert(place, entry);
            }
            (None, Some(entry)) => {
                assert!(!entry.withdrawn, "withdrawn twice");
                entry.withdrawn = true;
            }
            (None, None) => panic!("withdrawn, but never published"),
        }
    }
}

impl KeyPublisher for Way {
    fn publish(&self, key: &Key) {
        let before = self
            .host
            .state()
            .keys
            .insert((self.ip, key.value()), PublishedKey::of(key));
        assert!(before.is_none(), "published twice");
    }

    fn withdraw(&self, key: &Key) -> bool {
        let mut state = self.host.state();
        let withdrawn = state.keys.remove(&(self.ip, key.value()));
        assert!(withdrawn.is_some(), "withdrawn, but never published");
        assert!(
            key.check(key.iova(), 0, Access::empty()).is_err(),
            "withdrawn while it lives"
        );
        !state.stopped
    }
}

impl SharedState {
    fn execute(&mut self, request: &DirectRequest<'_>) -> Direct {
        if self
            .refuses_after
            .is_some_and(|pieces| self.asked.len() >= pieces)
        {
            return Direct::Refused;
        }
        self.try_execute(request).unwrap_or(Direct::Refused)
    }

    fn try_execute(&self, request: &DirectRequest<'_>) -> Option<Direct> {
        let entry = self.targets.get(&(request.remote, request.target))?;
        let key = self.keys.get(&(request.remote, request.rkey))?;
        if entry.withdrawn {
            return None;
        }
        Some(key.execute(&entry.target, request, &mut Vec::new()))
    }
}
