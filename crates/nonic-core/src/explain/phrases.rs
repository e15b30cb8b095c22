//! Phrases that several explanations share: what a request is called, and what is wrong with a key of this side.

use crate::record::{FailedRequest, LocalFault};
use crate::verbs::memory::KeyError;

/// What a request of this side was, for a sentence: `the WRITE of 64 bytes to 0x1000 with rkey 0x7`.
pub(super) fn named(failed: &FailedRequest) -> String {
    let opcode = failed.opcode;
    match failed.remote {
        Some((va, rkey)) => format!(
            "the {opcode} of {} bytes, wr_id {}, at the peer's address {va:#x} with rkey {rkey:#x}",
            failed.length, failed.wr_id
        ),
        None => format!("the {opcode} of {} bytes, wr_id {}", failed.length, failed.wr_id),
    }
}

/// What is wrong with a key of this side, as a phrase.
pub(super) fn local_fault(fault: &LocalFault) -> String {
    let lkey = fault.lkey;
    match (fault.error, &fault.key) {
        (KeyError::Unknown, _) => format!("there is no key {lkey:#x} here"),
        (KeyError::Revoked, _) => format!("the key {lkey:#x} was valid and has been revoked"),
        (KeyError::Domain, _) => {
            format!("the key {lkey:#x} belongs to another protection domain than the queue pair")
        }
        (KeyError::Rights, Some(key)) => format!(
            "the key {lkey:#x} does not permit the local NIC to do that; it permits {:?}",
            key.access
        ),
        (KeyError::Bounds, Some(key)) => format!(
            "{} bytes at {:#x} are out of bounds of the key {lkey:#x}, which covers {} bytes from {:#x}",
            fault.length, fault.addr, key.length, key.iova
        ),
        (error, _) => format!("the key {lkey:#x}: {error}"),
    }
}
