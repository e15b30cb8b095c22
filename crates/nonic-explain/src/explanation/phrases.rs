//! A phrase that several explanations share: what a request is called.

use nonic_core::record::FailedRequest;

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
