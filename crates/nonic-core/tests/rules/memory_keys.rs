//! The key table itself: what can be registered, found, invalidated.

use nonic_core::{Access, HeapRegion, KeyError, KeySpec, KeyTable, Qpn, SeededEntropy};
use std::sync::Arc;

fn table() -> (KeyTable, KeySpec) {
    let keys = KeyTable::new();
    let spec = KeySpec {
        pd: keys.alloc_pd(),
        region: Arc::new(HeapRegion::zeroed(4096)),
        offset: 1024,
        length: 2048,
        iova: 0x10_0000,
        access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        bound_qp: None,
        invalidatable: true,
    };
    (keys, spec)
}

#[test]
fn remote_write_and_atomic_rights_need_local_write() {
    let (keys, spec) = table();
    for remote in [
        Access::REMOTE_WRITE,
        Access::REMOTE_ATOMIC,
        Access::REMOTE_WRITE | Access::REMOTE_READ,
    ] {
        let refused = KeySpec {
            access: remote,
            ..spec.clone()
        };
        assert_eq!(keys.register_as(1, refused).err(), Some(KeyError::InvalidRights));
        let granted = KeySpec {
            access: remote | Access::LOCAL_WRITE,
            ..spec.clone()
        };
        assert!(matches!(keys.register_as(1, granted), Ok(Some(_))));
        assert!(keys.revoke(1));
    }
    for local in [
        Access::empty(),
        Access::REMOTE_READ,
        Access::MW_BIND,
        Access::LOCAL_WRITE,
    ] {
        let granted = KeySpec {
            access: local,
            ..spec.clone()
        };
        assert!(matches!(keys.register_as(1, granted), Ok(Some(_))));
        assert!(keys.revoke(1));
    }
}

#[test]
fn a_range_must_lie_within_its_region_and_the_address_space() {
    let (keys, spec) = table();
    for (offset, length, iova) in [
        (0, 4097, 0),
        (4097, 0, 0),
        (1, 4096, 0),
        (usize::MAX, 1, 0),
        (0, u64::MAX, 0),
        (0, 4096, u64::MAX - 4095 + 1),
    ] {
        let refused = KeySpec {
            offset,
            length,
            iova,
            ..spec.clone()
        };
        assert_eq!(keys.register_as(1, refused).err(), Some(KeyError::Bounds));
    }
    let whole = KeySpec {
        offset: 0,
        length: 4096,
        iova: u64::MAX - 4096,
        ..spec
    };
    assert!(matches!(keys.register_as(1, whole), Ok(Some(_))));
}

#[test]
fn a_check_answers_the_offset_in_the_region() {
    let (keys, spec) = table();
    let key = keys.register_as(1, spec).expect("valid").expect("free");
    let check = |va, length| key.check(va, length, Access::REMOTE_WRITE);
    assert_eq!(check(0x10_0000, 2048), Ok(1024));
    assert_eq!(check(0x10_0005, 7), Ok(1029));
    assert_eq!(check(0x10_0800, 0), Ok(3072));
    assert_eq!(check(0x10_0000, 2049), Err(KeyError::Bounds));
    assert_eq!(check(0x0f_ffff, 1), Err(KeyError::Bounds));
    assert_eq!(check(0x10_0800, 1), Err(KeyError::Bounds));
    assert_eq!(check(u64::MAX, u64::MAX), Err(KeyError::Bounds));
    assert_eq!(
        key.check(0x10_0000, 8, Access::REMOTE_READ),
        Err(KeyError::Rights)
    );
    assert!(keys.revoke(1));
    assert_eq!(check(0x10_0000, 8), Err(KeyError::Revoked));
}

#[test]
fn keys_belong_to_domains_and_windows_to_queue_pairs() {
    let (keys, spec) = table();
    let (mine, other) = (spec.pd, keys.alloc_pd());
    let (qp, neighbour) = (Qpn::new(7), Qpn::new(8));
    let window = KeySpec {
        bound_qp: Some(qp),
        ..spec.clone()
    };
    keys.register_as(1, spec).expect("valid").expect("free");
    keys.register_as(2, window).expect("valid").expect("free");
    let find = |value, pd, qpn| keys.find(value, pd, qpn).map(|_| ());
    assert_eq!(find(1, mine, neighbour), Ok(()));
    assert_eq!(find(1, other, qp), Err(KeyError::Domain));
    assert_eq!(find(2, mine, qp), Ok(()));
    assert_eq!(find(2, mine, neighbour), Err(KeyError::Domain));
    assert_eq!(find(3, mine, qp), Err(KeyError::Unknown));
}

#[test]
fn invalidation_asks_for_permission() {
    let (keys, spec) = table();
    let (pd, qpn) = (spec.pd, Qpn::new(7));
    let fixed = KeySpec {
        invalidatable: false,
        ..spec.clone()
    };
    keys.register_as(1, spec).expect("valid").expect("free");
    keys.register_as(2, fixed).expect("valid").expect("free");
    let other = keys.alloc_pd();
    assert_eq!(keys.invalidate(1, other, qpn), Err(KeyError::Domain));
    assert_eq!(keys.invalidate(2, pd, qpn), Err(KeyError::NotInvalidatable));
    assert_eq!(keys.invalidate(1, pd, qpn), Ok(()));
    assert_eq!(keys.invalidate(1, pd, qpn), Err(KeyError::Unknown));
    assert_eq!(keys.len(), 1);
}

#[test]
fn a_key_in_use_is_not_given_twice() {
    let (keys, spec) = table();
    assert!(matches!(keys.register_as(5, spec.clone()), Ok(Some(_))));
    assert!(matches!(keys.register_as(5, spec), Ok(None)));
}

#[test]
fn fresh_keys_differ_and_are_not_zero() {
    let (keys, spec) = table();
    let mut entropy = SeededEntropy::new(1);
    for _ in 0..1000 {
        let key = keys.register(spec.clone(), &mut entropy).expect("valid");
        assert_ne!(key.value(), 0);
    }
    assert_eq!(keys.len(), 1000);
}

#[test]
fn a_key_does_not_show_its_value_in_logs() {
    let (keys, spec) = table();
    let key = keys.register_as(0xdead_beef, spec).expect("valid").expect("free");
    let shown = format!("{key:?}");
    assert!(!shown.contains("3735928559") && !shown.to_lowercase().contains("deadbeef"));
}
