//! Explains in sentences what happened to a queue pair: what went wrong, what most likely led to it, and what to try
//! next.
//!
//! It is a pure function of a status and of the events that the core recorded ([`nonic_core::record`]). What neither
//! tells is filled in from the general meaning of the status ([`topics`], which `nonic explain` prints). Nothing here
//! guesses at numbers: an address, a key or a length in a sentence was in a packet or in a work request.
//!
//! It is prose for users and decides nothing: the NIC works without it. Read first: [`Explanation`], then
//! `explanation::cause`, which finds the event that led to a failure.

#![forbid(unsafe_code)]

mod explanation;
pub mod topics;

pub use explanation::Explanation;
