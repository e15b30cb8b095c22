//! The Rust API on real sockets.
//!
//! One binary for all of them: it is linked once, and nextest runs each test in a process of its own.

mod bench;
#[path = "bench/first_numbers.rs"]
mod first_numbers;

mod api;
mod background;
mod batch;
mod closing;
mod connect;
mod datagram_service;
mod documented;
mod examples;
mod explained;
mod exposed_ranges;
mod fetch_limits;
mod finishing;
mod iwarp;
mod iwarp_descriptors;
mod keepalive;
mod leaving;
mod no_receive;
mod owned_memory;
mod pool;
mod private_data;
mod recycled_memory;
mod requests;
mod runtime;
mod spans;
mod streams;
mod unspecified_address;
mod verbs_names;
mod waiting;
mod windows;
mod xrc;
