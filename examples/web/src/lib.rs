//! What the examples share: an HTTP service with a client, and a gRPC service with a client. None of them knows what it runs over:
//! the servers take a listener, the clients a stream.

#![forbid(unsafe_code)]

pub mod grpc;
pub mod http;
