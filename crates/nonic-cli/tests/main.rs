//! The command, and processes of one host and of several.
//!
//! One binary for all of them: it is linked once, and nextest runs each test in a process of its own.

#[path = "support/attacks.rs"]
mod attacks;
#[path = "support/confinement.rs"]
mod confinement;
#[path = "support/lane_attacks.rs"]
mod lane_attacks;
#[path = "support/lingering.rs"]
mod lingering;
#[path = "support/party.rs"]
mod party;
#[path = "support/passing.rs"]
mod passing;
mod support;
#[path = "support/tshark.rs"]
mod tshark;

mod capture;
mod command_line;
mod draw;
mod exits;
mod explain;
mod hostile_users;
mod idle;
mod inspect;
mod killed_peer;
mod limits;
mod loopback;
mod mapped_memory;
mod namespaces;
mod nvme_target;
mod port_sharing;
mod run;
mod run_environment;
mod same_host;
mod screens;
mod taken_port;
mod unprivileged;
