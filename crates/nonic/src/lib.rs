//! RDMA with no NIC: a safe verbs API over a software RNIC that lives in this process.
//!
//! ```
//! use nonic::{Device, Rc};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open("roce_lo")?;
//! let (domain, queue) = (device.domain(), device.completion_queue(16)?);
//!
//! // Two queue pairs, connected to each other by exchanging endpoints (here: within one program).
//! let (left, right) = (domain.queue_pair::<Rc>(&queue)?, domain.queue_pair::<Rc>(&queue)?);
//! let (here, there) = (left.endpoint(), right.endpoint());
//! let (mut left, mut right) = (left.connect(&there)?, right.connect(&here)?);
//!
//! // Buffers are owned: moved into the request, returned by its completion.
//! right.rq.recv(1, domain.lease(64)?)?;
//! left.sq.send(2, domain.lease_from(b"hello, no NIC")?)?;
//!
//! for _ in 0..2 {
//!     let done = queue.wait(None)?.expect("no time limit was given");
//!     let length = done.result?;
//!     if done.id == 1 {
//!         assert_eq!(&done.buffers[0][..length], b"hello, no NIC");
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! # What to read first
//!
//! - [`Device`], [`Domain`]: what there is and what belongs together.
//! - [`Lease`] and [`Exposed`]: the two kinds of registered memory. A lease is yours alone until you move it
//!   into a request; exposed memory can be touched by peers at any time and is never a slice.
//! - [`QueuePair`]: its two halves can live on different threads.
//! - [`CompletionQueue`]: poll it, wait on it, or await it.
//! - [`Listener`] and [`connect`]: queue pairs connected by address and port; [`DatagramListener`] and [`resolve`]
//!   for datagrams.
//!
//! Two pages tell more: [docs/rust.md](https://github.com/nonic-rdma/nonic/blob/main/docs/rust.md) has requests as futures and connections by
//! address, [docs/connections.md](https://github.com/nonic-rdma/nonic/blob/main/docs/connections.md) every step of connecting, in C and in Rust.
//! For messages of any size there is `nonic-message`, for byte streams `nonic-stream`.
//!
//! The documentation can be searched for the names of verbs, such as `ibv_reg_mr` or `rdma_connect`.
//!
//! # What cannot happen
//!
//! A buffer cannot be freed, read or written while the NIC uses it: it is not in your hands. A queue pair
//! of a service without READ has no `read` method. Connecting twice does not compile. Cancelling a future
//! abandons nothing: the completion stays in its queue.

#[doc(hidden)]
pub mod background;
mod cm_dispatcher;
mod completion;
mod completion_queue;
mod connection;
mod device;
mod endpoint;
mod keepalive;
mod memory;
mod outstanding;
mod pool;
mod posting;
mod private_data;
mod queue_pair;
mod refused;
mod request;
mod route;
#[cfg(feature = "tokio")]
mod runtime;
mod shared_receive_queue;
mod span;
mod ticket;
mod transport;
mod xrc;

pub use completion_queue::{NextCompletion, WaitError};
pub use connection::{
    CloseReason, Closed, ConnectError, Finishing, ListenError, ReceiveHalf, Resolving, SendHalf,
};
pub use device::{Events, Usage};
pub use endpoint::{Endpoint, ParseEndpointError};
pub use memory::{BufferSet, MemoryError, OwnedMemory, ParseRemoteSliceError, Recycler};
pub use nonic_core::{
    AckTimeout, Counters, CqOverflow, CreateError, ModifyError, NicConfig, PostError, Psn, Qpn, RnrTimer,
    record,
};
pub use nonic_engine::host::{PortOwner, PortState, RetryReason, port_owner};
pub use nonic_engine::inspect;
pub use nonic_engine::netdev::LocalAddress;
pub use nonic_engine::{
    Config, DirectRoad, FaultPlan, InvalidFaults, LaneRoad, LinkCounters, OpenError, roads,
};
pub use nonic_explain::{self as explain, Explanation};
pub use nonic_wire::cm::RejectReason;
pub use private_data::{PrivateData, PrivateDataTooLong};
pub use queue_pair::{Fetch, WindowRequest};
pub use request::{Receive, Received, Request, RequestError, RequestFailed};
#[cfg(feature = "tokio")]
pub use runtime::DriveOnRuntime;
pub use transport::{Connected, Datagram, Reliable};

// Programmers who know verbs search for their names. Aliases of types and functions stand here and not at the items
// because rustdoc 1.95 loses the aliases of what a private module defines (rust-lang/rust#152939). Aliases of methods,
// fields and variants stand where these are defined.

#[doc(alias = "ibv_wc")]
pub use completion::Completion;
#[doc(alias("ibv_cq", "ibv_create_cq", "ibv_destroy_cq"))]
pub use completion_queue::CompletionQueue;
#[doc(alias = "rdma_cm_id")]
pub use connection::Connecting;
#[doc(alias = "rdma_cm_id")]
pub use connection::Connection;
#[doc(alias("rdma_cm_id", "rdma_listen", "RDMA_PS_UDP"))]
pub use connection::DatagramListener;
#[doc(alias = "rdma_ud_param")]
pub use connection::DatagramService;
#[doc(alias = "RDMA_CM_EVENT_CONNECT_REQUEST")]
pub use connection::Incoming;
#[doc(alias = "RDMA_CM_EVENT_CONNECT_REQUEST")]
pub use connection::Inquiry;
#[doc(alias("rdma_cm_id", "rdma_create_id", "rdma_listen", "RDMA_PS_TCP"))]
pub use connection::Listener;
#[doc(alias("rdma_connect", "rdma_resolve_addr", "rdma_resolve_route"))]
pub use connection::connect;
#[doc(alias("rdma_connect", "rdma_conn_param"))]
pub use connection::connect_with;
#[doc(alias("rdma_resolve_addr", "rdma_connect"))]
pub use connection::resolve;
#[doc(alias("ibv_context", "ibv_open_device", "ibv_close_device"))]
pub use device::Device;
#[doc(alias("ibv_pd", "ibv_alloc_pd", "ibv_dealloc_pd"))]
pub use device::Domain;
#[doc(alias("ibv_sge", "sg_list"))]
pub use memory::Buffers;
#[doc(alias("ibv_mr", "ibv_reg_mr"))]
pub use memory::Exposed;
#[doc(alias = "ibv_sge")]
pub use memory::ExposedRange;
#[doc(alias("ibv_mr", "ibv_reg_mr"))]
pub use memory::Lease;
#[doc(alias = "remote_addr")]
pub use memory::RemoteSlice;
#[doc(alias("ibv_mw", "ibv_alloc_mw", "ibv_dealloc_mw"))]
pub use memory::{BoundWindow, Window};
#[doc(alias("ibv_mr", "ibv_reg_mr"))]
pub use pool::Pool;
#[doc(alias("ibv_qp_attr", "rdma_conn_param"))]
pub use queue_pair::ConnectOptions;
#[doc(alias("ibv_ah", "ibv_create_ah"))]
pub use queue_pair::Peer;
#[doc(alias("ibv_qp", "ibv_modify_qp"))]
pub use queue_pair::Prepared;
#[doc(alias("ibv_qp", "ibv_destroy_qp"))]
pub use queue_pair::QueuePair;
#[doc(alias("ibv_qp_init_attr", "ibv_create_qp"))]
pub use queue_pair::QueuePairBuilder;
#[doc(alias = "ibv_post_recv")]
pub use queue_pair::ReceiveQueue;
#[doc(alias = "bad_wr")]
pub use queue_pair::RefusedBatch;
#[doc(alias("ibv_post_send", "ibv_send_wr"))]
pub use queue_pair::SendQueue;
#[doc(alias = "bad_wr")]
pub use refused::Refused;
#[doc(alias("ibv_srq", "ibv_destroy_srq"))]
pub use shared_receive_queue::SharedReceiveQueue;
#[doc(alias = "IBV_QPT_RC")]
pub use transport::Rc;
#[doc(alias = "ibv_qp_type")]
pub use transport::Transport;
#[doc(alias = "IBV_QPT_UC")]
pub use transport::Uc;
#[doc(alias = "IBV_QPT_UD")]
pub use transport::Ud;
#[doc(alias = "IBV_QPT_XRC_SEND")]
pub use transport::Xrc;
pub use xrc::PreparedTarget;
#[doc(alias("ibv_xrcd", "ibv_close_xrcd"))]
pub use xrc::XrcDomain;
#[doc(alias("ibv_srq", "ibv_destroy_srq"))]
pub use xrc::XrcReceiveQueue;
#[doc(alias = "IBV_QPT_XRC_RECV")]
pub use xrc::XrcTarget;

// What is defined below this crate is shown in its documentation, so that it is found here.

#[doc(inline)]
#[doc(alias(
    "ibv_access_flags",
    "IBV_ACCESS_LOCAL_WRITE",
    "IBV_ACCESS_REMOTE_WRITE",
    "IBV_ACCESS_REMOTE_READ",
    "IBV_ACCESS_REMOTE_ATOMIC",
    "IBV_ACCESS_MW_BIND",
    "IBV_ACCESS_ZERO_BASED"
))]
pub use nonic_core::Access;
#[doc(inline)]
#[doc(alias(
    "ibv_wc_opcode",
    "IBV_WC_SEND",
    "IBV_WC_RDMA_WRITE",
    "IBV_WC_RDMA_READ",
    "IBV_WC_COMP_SWAP",
    "IBV_WC_FETCH_ADD",
    "IBV_WC_BIND_MW",
    "IBV_WC_LOCAL_INV",
    "IBV_WC_RECV",
    "IBV_WC_RECV_RDMA_WITH_IMM"
))]
pub use nonic_core::CompletionOpcode;
#[doc(inline)]
#[doc(alias(
    "ibv_async_event",
    "ibv_event_type",
    "IBV_EVENT_CQ_ERR",
    "IBV_EVENT_QP_FATAL",
    "IBV_EVENT_QP_REQ_ERR",
    "IBV_EVENT_QP_ACCESS_ERR",
    "IBV_EVENT_QP_LAST_WQE_REACHED",
    "IBV_EVENT_SQ_DRAINED",
    "IBV_EVENT_SRQ_LIMIT_REACHED",
    "IBV_EVENT_COMM_EST",
    "IBV_EVENT_DEVICE_FATAL"
))]
pub use nonic_core::Event;
#[doc(inline)]
#[doc(alias(
    "ibv_mtu",
    "IBV_MTU_256",
    "IBV_MTU_512",
    "IBV_MTU_1024",
    "IBV_MTU_2048",
    "IBV_MTU_4096"
))]
pub use nonic_core::PathMtu;
#[doc(inline)]
#[doc(alias = "ibv_qp_cap")]
pub use nonic_core::QpCapacity;
#[doc(inline)]
#[doc(alias(
    "ibv_qp_state",
    "IBV_QPS_RESET",
    "IBV_QPS_INIT",
    "IBV_QPS_RTR",
    "IBV_QPS_RTS",
    "IBV_QPS_SQD",
    "IBV_QPS_SQE",
    "IBV_QPS_ERR"
))]
pub use nonic_core::QpState;
#[doc(inline)]
#[doc(alias(
    "ibv_wc_status",
    "IBV_WC_SUCCESS",
    "IBV_WC_LOC_LEN_ERR",
    "IBV_WC_LOC_QP_OP_ERR",
    "IBV_WC_LOC_PROT_ERR",
    "IBV_WC_WR_FLUSH_ERR",
    "IBV_WC_MW_BIND_ERR",
    "IBV_WC_BAD_RESP_ERR",
    "IBV_WC_REM_INV_REQ_ERR",
    "IBV_WC_REM_ACCESS_ERR",
    "IBV_WC_REM_OP_ERR",
    "IBV_WC_RETRY_EXC_ERR",
    "IBV_WC_RNR_RETRY_EXC_ERR"
))]
pub use nonic_core::Status;
#[doc(inline)]
#[doc(alias = "ibv_gid")]
pub use nonic_engine::netdev::Gid;
#[doc(inline)]
#[doc(alias("ibv_port_state", "IBV_PORT_ACTIVE", "IBV_PORT_DOWN"))]
pub use nonic_engine::netdev::LinkState;
#[doc(inline)]
#[doc(alias("ibv_device", "ibv_get_device_name"))]
pub use nonic_engine::netdev::NetDevice;
#[doc(inline)]
#[doc(alias("ibv_transport_type", "IBV_TRANSPORT_IWARP", "IBV_TRANSPORT_IB"))]
pub use nonic_engine::netdev::Wire;
#[doc(inline)]
#[doc(alias("ibv_gid_entry", "ibv_query_gid_ex"))]
pub use nonic_engine::netdev::{GidEntry, verbs_gid_table};

/// The Q_Key that all datagram programs on Linux's rdma_cm use; their requests do not carry it.
pub const RDMA_UDP_QKEY: u32 = 0x0123_4567;

/// The README's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// So are those of the page about Rust.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct RustPage;
