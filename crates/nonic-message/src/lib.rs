//! Messages of any size between two programs, over RDMA with no NIC.

#![forbid(unsafe_code)]

pub mod protocol;
