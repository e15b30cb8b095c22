//! Structures and constants of `<infiniband/verbs.h>`, by topic.
//!
//! Names are those of the header, so that a reader (and the layout test) finds them there; what they mean is
//! in rdma-core's man pages. This module refuses to hold logic: a structure here has no methods.
//!
//! Read first: `verbs_context`, the table through which programs call most verbs.

#![allow(non_camel_case_types, reason = "C names, to be found in the header")]
#![allow(missing_docs, reason = "the man pages of rdma-core describe every field")]

pub mod address;
pub mod context;
pub mod cq;
pub mod device;
pub mod event;
pub mod memory;
pub mod qp;
pub mod qp_ex;
pub mod srq;
pub mod work;

pub use address::*;
pub use context::*;
pub use cq::*;
pub use device::*;
pub use event::*;
pub use memory::*;
pub use qp::*;
pub use qp_ex::*;
pub use srq::*;
pub use work::*;
