//! The messages that other processes write into an inbox.

use nonic_engine::host::Message;

/// Decoding never panics, and a handover names packets and where they came from.
pub fn decode(bytes: &[u8]) {
    if let Some(Message::Handover(datagrams)) = Message::decode(bytes) {
        assert!(datagrams.stride > 0 && !datagrams.bytes.is_empty());
        assert_eq!(datagrams.src.is_ipv4(), datagrams.dst_ip.is_ipv4());
        assert!(datagrams.bytes.len() < bytes.len());
    }
}
