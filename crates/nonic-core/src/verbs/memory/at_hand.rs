//! The key table as one NIC uses it: the local keys that its work requests named last are at hand.
//!
//! Finding a key in the table takes a lock and counts a reference, and both are words that other threads change too. A key that is at hand
//! costs neither. It is checked for each access like any other, so one that was revoked permits nothing. But it keeps its memory: who revokes
//! keys has each NIC [let go](Keys::let_go) of those it has at hand.

use super::{Key, KeyError, KeyTable, PdId};
use nonic_wire::Qpn;
use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;

/// As many keys as a program uses in turn, most likely.
const AT_HAND: usize = 16;

/// The keys of a device, for one of its NICs.
#[derive(Debug)]
pub(crate) struct Keys {
    table: Arc<KeyTable>,
    /// By the last bits of their numbers, which are random.
    at_hand: RefCell<[Option<Arc<Key>>; AT_HAND]>,
}

impl Deref for Keys {
    type Target = Arc<KeyTable>;

    fn deref(&self) -> &Arc<KeyTable> {
        &self.table
    }
}

impl Keys {
    pub(crate) fn new(table: Arc<KeyTable>) -> Self {
        Keys {
            table,
            at_hand: RefCell::default(),
        }
    }

    /// Uses the local key that a work request of this domain names.
    #[inline]
    pub(crate) fn with_local<T>(
        &self,
        lkey: u32,
        pd: PdId,
        used: impl FnOnce(&Key) -> T,
    ) -> Result<T, KeyError> {
        {
            let at_hand = self.at_hand.borrow();
            let key = at_hand[lkey as usize % AT_HAND].as_deref();
            // Its number may have been given to another since.
            if let Some(key) = key.filter(|key| key.value() == lkey && key.pd() == pd && key.is_live()) {
                return Ok(used(key));
            }
        }
        Ok(used(&*self.find_local(lkey, pd)?))
    }

    #[cold]
    fn find_local(&self, lkey: u32, pd: PdId) -> Result<Arc<Key>, KeyError> {
        // What a queue pair has to do with is a key for peers.
        let key = self.table.find(lkey, pd, Qpn::new(0))?;
        if key.is_window() {
            return Err(KeyError::Rights);
        }
        // While another is being used, it stays.
        if let Ok(mut at_hand) = self.at_hand.try_borrow_mut() {
            at_hand[lkey as usize % AT_HAND] = Some(Arc::clone(&key));
        }
        Ok(key)
    }

    /// Has no key at hand any more.
    pub(crate) fn let_go(&mut self) {
        self.at_hand = RefCell::default();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Access, HeapRegion, KeySpec};
    use super::*;
    use std::sync::Weak;

    fn register(keys: &Keys, value: u32, pd: PdId) -> Weak<HeapRegion> {
        let region = Arc::new(HeapRegion::zeroed(8));
        let memory = Arc::downgrade(&region);
        let spec = KeySpec {
            pd,
            region,
            offset: 0,
            length: 8,
            iova: 0,
            access: Access::LOCAL_WRITE,
            bound_qp: None,
            invalidatable: true,
        };
        let registered = keys.register_as(value, spec).expect("it can be registered");
        assert!(registered.is_some(), "the number is free");
        memory
    }

    #[test]
    fn a_key_at_hand_is_not_used_by_another_domain_nor_once_it_is_revoked() {
        let keys = Keys::new(Arc::new(KeyTable::new()));
        let (own, other) = (keys.alloc_pd(), keys.alloc_pd());
        register(&keys, 5, own);
        for _ in 0..2 {
            assert_eq!(keys.with_local(5, own, |key| key.value()), Ok(5));
            assert_eq!(
                keys.with_local(5, other, |key| key.value()),
                Err(KeyError::Domain)
            );
        }
        assert!(keys.revoke(5));
        assert_eq!(keys.with_local(5, own, |key| key.value()), Err(KeyError::Unknown));
    }

    #[test]
    fn a_number_that_was_given_anew_means_the_new_key() {
        let keys = Keys::new(Arc::new(KeyTable::new()));
        let pd = keys.alloc_pd();
        register(&keys, 5, pd);
        let write = |byte| {
            keys.with_local(5, pd, |key| key.region().write(0, &[byte]))
                .map(|done| done.is_ok())
        };
        assert_eq!(write(1), Ok(true));
        assert!(keys.revoke(5));
        let memory = register(&keys, 5, pd);
        assert_eq!(write(2), Ok(true));
        let mut byte = [0];
        use super::super::Region as _;
        memory
            .upgrade()
            .expect("it is registered")
            .read(0, &mut byte)
            .expect("it is there");
        assert_eq!(byte, [2]);
    }

    #[test]
    fn memory_is_free_once_its_key_is_revoked_and_let_go() {
        let mut keys = Keys::new(Arc::new(KeyTable::new()));
        let pd = keys.alloc_pd();
        let memory = register(&keys, 5, pd);
        assert!(keys.with_local(5, pd, |_| ()).is_ok());
        assert!(keys.revoke(5));
        keys.let_go();
        assert!(memory.upgrade().is_none());
    }

    /// Two keys share a place.
    #[test]
    fn a_key_is_used_while_another_is() {
        let keys = Keys::new(Arc::new(KeyTable::new()));
        let pd = keys.alloc_pd();
        let other = 5 + AT_HAND as u32;
        register(&keys, 5, pd);
        register(&keys, other, pd);
        assert!(keys.with_local(5, pd, |_| ()).is_ok());
        let inner = keys.with_local(5, pd, |_| keys.with_local(other, pd, |key| key.value()));
        assert_eq!(inner, Ok(Ok(other)));
    }
}
