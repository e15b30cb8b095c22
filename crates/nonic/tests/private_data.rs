//! Private data that programs exchange while they connect arrives as it was sent, on both wires.

use crate::bench::{PATIENCE, WIRES};
use nonic::{ConnectError, Device, Listener, PrivateData, Rc, connect};

#[test]
fn what_was_packed_comes_as_it_was_sent() {
    let packed = |bytes: &[u8]| PrivateData::packed(bytes).expect("short enough");
    for wire in WIRES {
        let device = Device::open(wire).expect("loopback is there");
        let domain = device.domain();
        let listener = Listener::bind(&device, "127.0.0.1:0".parse().expect("an address")).expect("free");
        let ask =
            |words: &[u8]| connect(domain.pair_builder::<Rc>(), listener.local_addr(), words).expect("asked");
        for words in [&b"zeros\0\0"[..], b"", b"\0", b"text"] {
            let connecting = ask(&packed(words));
            let incoming = listener.accept_within(PATIENCE).expect("a request");
            assert_eq!(incoming.private_data().unpacked(), Some(words), "{wire}");
            let server = incoming
                .accept(domain.pair_builder::<Rc>(), &packed(words))
                .expect("accepted");
            let client = connecting.wait_within(PATIENCE).expect("connected");
            assert_eq!(client.private_data().unpacked(), Some(words), "{wire}");
            assert_eq!(server.private_data().unpacked(), Some(words), "{wire}");
        }
        let connecting = ask(b"let me in");
        let incoming = listener.accept_within(PATIENCE).expect("a request");
        assert_eq!(incoming.private_data().trimmed(), b"let me in");
        incoming.reject(b"no").expect("rejected");
        let Err(ConnectError::Rejected { private_data, .. }) = connecting.wait_within(PATIENCE) else {
            panic!("it was rejected");
        };
        assert_eq!(private_data.trimmed(), b"no");
        assert_eq!(format!("{private_data:?}"), "\"no\"");
    }
}
