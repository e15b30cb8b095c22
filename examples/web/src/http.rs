//! An axum router, and a client of hyper on one connection.

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::routing::{get, post};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// `GET /` greets, and `POST /echo` answers with what it was sent.
pub fn router() -> Router {
    Router::new()
        .route("/", get(|| async { "hello from axum, without TCP\n" }))
        .route("/echo", post(|body: Bytes| async { body }))
}

/// One connection to such a server.
#[derive(Debug)]
pub struct HttpClient {
    sender: SendRequest<Full<Bytes>>,
}

impl HttpClient {
    /// Speaks HTTP/1.1 over any stream.
    pub async fn new(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Self> {
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // It ends with the client.
        tokio::spawn(connection);
        Ok(HttpClient { sender })
    }

    /// The page at `/`.
    pub async fn greeting(&mut self) -> Result<Bytes> {
        self.ask(Request::get("/").header("host", "nonic").body(Full::default())?)
            .await
    }

    /// Sends bytes and returns what came back.
    pub async fn echo(&mut self, body: Bytes) -> Result<Bytes> {
        let request = Request::post("/echo").header("host", "nonic");
        self.ask(request.body(Full::new(body))?).await
    }

    async fn ask(&mut self, request: Request<Full<Bytes>>) -> Result<Bytes> {
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        ensure!(status == StatusCode::OK, "the server answers {status}");
        let body = response.into_body().collect().await;
        Ok(body.context("the answer is cut off")?.to_bytes())
    }
}
