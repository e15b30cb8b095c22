//! `0.0.0.0` is no address of a peer: a device toward it would be that of loopback, and a listener there would be deaf to all others.

use nonic::{Device, OpenError};

#[test]
fn a_device_toward_no_address_is_refused_with_what_to_do() {
    for address in ["0.0.0.0", "::"] {
        let refused = Device::toward(address.parse().expect("an address"));
        let error = refused.expect_err("it is nobody's");
        assert!(matches!(error, OpenError::Io { .. }), "{error}");
        let told = error.to_string();
        for words in [address, "Device::for_addr", "Device::list"] {
            assert!(told.contains(words), "{told}");
        }
    }
}

#[test]
fn all_addresses_of_a_device_can_be_listened_on() {
    let device = Device::for_addr("127.0.0.1".parse().expect("an address")).expect("loopback");
    let listener = nonic::Listener::bind(&device, "0.0.0.0:0".parse().expect("an address"));
    assert!(listener.is_ok_and(|listener| listener.local_addr().port() != 0));
}
