//! Public functions that exist and refuse with `EOPNOTSUPP`, each with its reason: a program that was linked with a newer
//! librdmacm must start here.

use crate::refusal::ANSWER;
use libc::c_int;
use nonic_abi::errno::refused;

/// Defines a refusing function for each name, with the reason as its documentation.
macro_rules! refuse {
    ($($name:ident, $why:literal;)*) => {$(
        #[doc = $why]
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            let what = format!("it is not offered. {}", $why.trim_end_matches('.'));
            let next = "do without it; docs/differences.md says what is not offered and why";
            ANSWER.minus_one(stringify!($name), Err(refused(libc::EOPNOTSUPP, what, next)))
        }
    )*};
}

refuse! {
    rdma_resolve_addrinfo, "Asks the subnet administrator by a service's name; on Ethernet there is none.";
    rdma_query_addrinfo, "See `rdma_resolve_addrinfo`.";
    rdma_write_cm_event, "Puts an event of the program's own on a channel; so far nobody was seen to need it.";
    repoll_create, "Sockets of rsockets in a set: `rpoll` is offered instead.";
    repoll_ctl, "See `repoll_create`.";
    repoll_wait, "See `repoll_create`.";
}
