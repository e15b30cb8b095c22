//! The fuzz checks: what must hold for any input, as functions.
//!
//! The fuzz targets call these with what libFuzzer invents; ordinary tests of the crates concerned include
//! the modules by path and call them with the checked-in corpus, so that a finding stays found.
#![forbid(unsafe_code)]

pub mod cm;
pub mod direct;
pub mod iwarp;
pub mod lane;
pub mod nic;
pub mod nvme;
pub mod registry;
pub mod streams;
pub mod wire;
