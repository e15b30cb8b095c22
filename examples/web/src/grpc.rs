//! `service Echo { rpc Echo(Payload) returns (Payload); }` with `message Payload { bytes bytes = 1; }`, written by hand: what the
//! generator would make of it needs `protoc`, which the examples should not.

use anyhow::Result;
use axum::http::uri::PathAndQuery;
use axum::http::{self, Uri};
use bytes::{Buf, BufMut, Bytes};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::UnaryService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};
use tower::{Service, service_fn};

const PATH: &str = "/nonic.Echo/Echo";
/// Field 1, of a type that says its length.
const TAG: u8 = 1 << 3 | 2;

/// The server's side: give it to `tonic::transport::Server`.
#[derive(Copy, Clone, Debug)]
pub struct EchoService;

impl Service<http::Request<Body>> for EchoService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            if request.uri().path() != PATH {
                return Ok(Status::unimplemented("there is only Echo").into_http());
            }
            let mut grpc = tonic::server::Grpc::new(PayloadCodec);
            Ok(grpc.unary(Answer, request).await)
        })
    }
}

struct Answer;

impl UnaryService<Bytes> for Answer {
    type Response = Bytes;
    type Future = Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        ready(Ok(Response::new(request.into_inner())))
    }
}

/// The client's side.
#[derive(Clone, Debug)]
pub struct EchoClient {
    grpc: tonic::client::Grpc<Channel>,
}

impl EchoClient {
    /// Speaks gRPC over streams that `connect` makes.
    pub async fn new<F, S>(connect: impl Fn() -> F + Send + Sync + 'static) -> Result<Self>
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connector = service_fn(move |_: Uri| {
            let stream = connect();
            async move { stream.await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://nonic");
        let channel = endpoint.connect_with_connector(connector).await?;
        let grpc = tonic::client::Grpc::new(channel);
        Ok(EchoClient { grpc })
    }

    /// Calls `Echo`.
    pub async fn echo(&mut self, bytes: Bytes) -> Result<Bytes> {
        self.grpc.ready().await?;
        let path = PathAndQuery::from_static(PATH);
        let answer = self.grpc.unary(Request::new(bytes), path, PayloadCodec).await?;
        Ok(answer.into_inner())
    }
}

/// `Payload` as its bytes.
#[derive(Copy, Clone, Debug)]
struct PayloadCodec;

impl Codec for PayloadCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for PayloadCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, bytes: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        if bytes.is_empty() {
            return Ok(());
        }
        buffer.put_u8(TAG);
        let mut length = bytes.len();
        while length >= 0x80 {
            buffer.put_u8(length as u8 | 0x80);
            length >>= 7;
        }
        buffer.put_u8(length as u8);
        buffer.put(bytes);
        Ok(())
    }
}

impl Decoder for PayloadCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        if !buffer.has_remaining() {
            return Ok(Some(Bytes::new()));
        }
        let malformed = || Status::invalid_argument("this is no Payload");
        if buffer.get_u8() != TAG {
            return Err(malformed());
        }
        let (mut length, mut shift) = (0u64, 0);
        while buffer.has_remaining() && shift < 35 {
            let byte = buffer.get_u8();
            length |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        if length != buffer.remaining() as u64 {
            return Err(malformed());
        }
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
