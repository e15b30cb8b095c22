//! Pools of buffers, and leases that were cut and are put together again.

use crate::bench::Bench;
use nonic::{Access, Device, Rc};

#[test]
fn a_buffer_comes_back_with_its_last_part_and_is_used_again() {
    let bench = Bench::new();
    let pool = bench.domain.pool();
    let mut buffer = pool.lease(100).expect("memory");
    buffer.fill(7);
    let (free, keys) = (pool.free(), bench.device.usage().memory_keys);
    let (head, tail) = buffer.split_at(40);
    drop(head);
    assert_eq!(pool.free(), free, "a part of it is still in use");
    drop(tail);
    assert_eq!(pool.free(), free + 1);
    let again = pool.lease(256).expect("memory");
    assert!(again[..100].iter().all(|byte| *byte == 7), "the same one");
    assert_eq!(bench.device.usage().memory_keys, keys, "nothing was registered");
}

#[test]
fn every_length_fits() {
    let bench = Bench::new();
    let pool = bench.domain.pool();
    for length in [0, 1, 64, 65, 4096, 4097, 1 << 20, (1 << 20) + 1] {
        let buffer = pool.lease(length).expect("memory");
        assert_eq!(buffer.len(), length);
    }
    let kept = bench.device.usage().memory_keys;
    drop(pool);
    assert!(
        bench.device.usage().memory_keys < kept,
        "the pool took its memory along"
    );
}

#[test]
fn buffers_of_a_pool_do_not_overlap() {
    let bench = Bench::new();
    let pool = bench.domain.pool();
    let mut buffers: Vec<_> = (0..3000).map(|_| pool.lease(64).expect("memory")).collect();
    for (number, buffer) in buffers.iter_mut().enumerate() {
        buffer.fill(number as u8);
    }
    for (number, buffer) in buffers.iter().enumerate() {
        assert!(buffer.iter().all(|byte| *byte == number as u8));
    }
}

#[test]
fn what_was_cut_can_be_put_together_and_nothing_else() {
    let bench = Bench::new();
    let whole = bench.domain.lease_from(b"head and tail").expect("memory");
    let (head, tail) = whole.split_at(4);
    let (tail, head) = tail.join(head).expect_err("the wrong way round");
    let other = bench.domain.lease(4).expect("memory");
    let (head, _other) = head.join(other).expect_err("of another");
    assert_eq!(&head.join(tail).expect("neighbours")[..], b"head and tail");

    // Two buffers of a pool may lie side by side and go back one by one.
    let pool = bench.domain.pool();
    let mut buffers: Vec<_> = (0..4).map(|_| pool.lease(64).expect("memory")).collect();
    while let (Some(left), Some(right)) = (buffers.pop(), buffers.pop()) {
        let (left, right) = left.join(right).expect_err("two buffers");
        right.join(left).expect_err("two buffers");
    }
}

#[test]
fn pooled_buffers_can_be_sent_and_exposed() {
    let bench = Bench::new();
    let pool = bench.domain.pool();
    let (left, right) = (
        bench.domain.pair::<Rc>().expect("made"),
        bench.domain.pair::<Rc>().expect("made"),
    );
    let (here, there) = (left.endpoint(), right.endpoint());
    let (left, right) = (
        left.connect(&there).expect("connected"),
        right.connect(&here).expect("connected"),
    );
    let receive = right.recv(pool.lease(16).expect("memory"));
    left.send(pool.lease_from(b"from the pool").expect("memory"))
        .wait()
        .expect("sent");
    assert_eq!(receive.wait().expect("received").bytes(), b"from the pool");
    let exposed = pool
        .lease(8)
        .expect("memory")
        .expose(Access::REMOTE_WRITE)
        .expect("exposed");
    left.write(pool.lease_from(b"12345678").expect("memory"), exposed.remote())
        .wait()
        .expect("written");
    assert_eq!(&exposed.into_lease()[..], b"12345678");
}

#[test]
fn a_device_is_found_by_address() {
    let local = "127.0.0.1".parse().expect("an address");
    for device in [Device::for_addr(local), Device::toward(local)] {
        assert_eq!(device.expect("loopback").netdev().name, "lo");
    }
    let elsewhere = "192.0.2.1".parse().expect("an address");
    let error = Device::for_addr(elsewhere)
        .expect_err("nobody has it")
        .to_string();
    assert!(
        error.contains("192.0.2.1") && error.contains("roce_lo"),
        "{error}"
    );
}
