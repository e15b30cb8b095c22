//! Explains refused calls: the caller is told at once.

use super::{Explanation, sentence};
use nonic_core::{AttributeMask, CreateError, ModifyError, PostError, RecvRefused};

impl Explanation {
    /// Why a work request was not taken.
    pub fn of_post(error: PostError) -> Self {
        let steps: &[&str] = match error {
            PostError::NoSuchQp => &["post before the queue pair is destroyed"],
            PostError::State(_) => &[
                "bring the queue pair to RTS before sends are posted (INIT for receives), or connect it, which does that",
            ],
            PostError::SendQueueFull | PostError::Receive(RecvRefused::Full) => &[
                "take completions first; of sends, signal at least one per queue length",
                "create the queue pair with a larger max_send_wr or max_recv_wr",
            ],
            PostError::Receive(RecvRefused::TooManySges) | PostError::TooManySges => {
                &["create the queue pair with a larger max_send_sge or max_recv_sge, or post fewer elements"]
            }
            PostError::SharedReceiveQueue => &["post receives to the shared receive queue"],
            PostError::Unsupported => {
                &["READs and atomics need RC or XRC, WRITEs RC, UC or XRC; datagram queue pairs only SEND"]
            }
            PostError::Inline => {
                &["create the queue pair with a larger max_inline_data, or send from registered memory"]
            }
            PostError::Length => {
                &["an atomic has 8 bytes, a datagram at most the path MTU, any other message at most 2 GiB"]
            }
            PostError::BeyondRemote { .. } => &["use a longer slice of the remote memory, or fewer bytes"],
            PostError::Destination => &[
                "give datagrams an address (its GID index must be one of the device's) and XRC requests the number of an SRQ",
            ],
            PostError::NoFetches => &["connect with max_rd_atomic of 1 or more (rdma_cm: initiator_depth)"],
            PostError::DeviceFailed => &["open the device again"],
            // A test finds those that are not named above.
            _ => &[],
        };
        let happened = format!("The request was not taken: {error}");
        Explanation::known(sentence(&happened), &[], steps)
    }

    /// Why a queue pair was not modified.
    pub fn of_modify(error: ModifyError) -> Self {
        let steps: &[&str] = match error {
            ModifyError::NoTransition { .. } => {
                &["go through RESET, INIT, RTR, RTS one by one; from an error only to RESET"]
            }
            ModifyError::Missing { .. } => &["set the attributes and their bits in the mask"],
            ModifyError::Forbidden { .. } => &["leave their bits out of the mask"],
            ModifyError::Invalid(named) if named.0.contains(AttributeMask::PATH) => &[
                "use a GID index that the device has (`nonic devices`), of the same IP version as the peer's address",
            ],
            ModifyError::Invalid(named) if named.0.contains(AttributeMask::PATH_MTU) => {
                &["ask for no more than the active MTU of the port"]
            }
            ModifyError::Invalid(_) => &["compare it with what ibv_query_device and ibv_query_port say"],
            ModifyError::NoSuchQp => &["modify it before it is destroyed"],
        };
        let happened = format!("The queue pair was not modified: {error}");
        Explanation::known(sentence(&happened), &[], steps)
    }

    /// Why a queue pair or a shared receive queue was not created.
    pub fn of_create(error: CreateError) -> Self {
        let steps: &[&str] = match error {
            CreateError::Limit("the GID index") => &["use a GID index that the device has (`nonic devices`)"],
            CreateError::Limit(_) => {
                &["ask for no more than ibv_query_device says (`nonic devices --verbose`)"]
            }
            CreateError::Unsupported => &["use RC, UC, UD or XRC on a RoCE device, RC on an iWARP device"],
            CreateError::Domain => {
                &["create the shared receive queue in the protection domain of the queue pair"]
            }
            CreateError::NoMemory => {
                &["let the process have more memory (`ulimit -v`), or destroy what is not used"]
            }
            CreateError::QpnInUse | CreateError::NoQpn | CreateError::NoSrqNumber => {
                &["destroy what is not used any more"]
            }
            // A test finds those that are not named above.
            _ => &[],
        };
        let happened = format!("It was not created: {error}");
        Explanation::known(sentence(&happened), &[], steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nonic_core::QpState;

    #[test]
    fn what_is_not_taken_has_a_next_step() {
        let state = Explanation::of_post(PostError::State(QpState::Rtr)).to_string();
        assert!(
            state.contains("in state RTR") && state.contains("Try: bring the queue pair to RTS"),
            "{state}"
        );
        let inline = Explanation::of_post(PostError::Inline).to_string();
        assert!(inline.contains("max_inline_data"), "{inline}");
    }
}
