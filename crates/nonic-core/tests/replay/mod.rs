//! Conversations recorded between two Linux rxe hosts, with our NIC in place of one of them.
//!
//! The captures are in `tests/data/captures` at the root of the repository. In `as_client` our NIC posts the
//! work the recorded client posted: it must send what rxe sent, and completes from rxe's recorded answers.
//! In `as_server` it gets the recorded client's packets, duplicates, losses and damage included, and must
//! answer as rxe did.
//!
//! Where we differ from rxe, on purpose:
//!
//! | rxe | nonic | why it is allowed |
//! |---|---|---|
//! | asks for an acknowledgement at the end of a message | also along the way in long messages, and when the window is full | any packet may ask |
//! | leaves the migration bit clear | sets it: the path is in the migrated state, as hardware says | no peer migrates |
//! | counts the IPv4 Identification up | 0, or the index in a batch | see the ICRC module of nonic-wire |
//! | derives the UDP source port from the queue pair number | the port of its socket | any source port is legal |
//! | acknowledges every packet of a repeated message | only those that end it or ask | one answer is enough |
//! | answers the rest of a READ, when asked again, with Middle and Last packets | with First and Last, or Only | a repeated request is a request |
//! | now and then sends a packet twice without need (`rc_send`, PSN 0x100016) | does not | |
//! | ends a receive that is too short with a local operation error | with a length error | the peer hears the same |

mod as_client;
mod as_server;
mod capture;
mod host;

/// Message lengths of the recorded SEND, WRITE and READ series.
const SIZES: [u32; 12] = [0, 1, 2, 3, 4, 5, 64, 1023, 1024, 1025, 3000, 8192];

/// Lengths of those with immediate data.
const IMMEDIATE_SIZES: [u32; 4] = [0, 5, 1024, 3000];

/// The payload of step `step`: byte *i* is *i* + 7 × step.
fn payload(step: u32, length: u32) -> Vec<u8> {
    (0..length).map(|i| (i + 7 * step) as u8).collect()
}

/// Immediate data as it is on the wire: the recorded program stored it in its own byte order, the reverse.
fn immediate(value: u32) -> u32 {
    value.swap_bytes()
}
