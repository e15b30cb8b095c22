//! A tonic server and client that talk gRPC over RDMA.
//!
//! `cargo run -p nonic-web-examples --example grpc_echo` runs both in one process and ends;
//! with `--server 127.0.0.1:50051` it serves, and with `--client 127.0.0.1:50051` it calls such a server.

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use nonic_stream::{RdmaListener, RdmaStream};
use nonic_web_examples::grpc::{EchoClient, EchoService};
use tonic::transport::Server;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => {
            let listener = RdmaListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            tokio::spawn(serve(listener));
            call(&address.to_string()).await
        }
        ["--server", address] => serve(RdmaListener::bind(address).await?).await,
        ["--client", address] => call(address).await,
        _ => bail!("arguments are none, --server ADDRESS or --client ADDRESS"),
    }
}

async fn serve(listener: RdmaListener) -> Result<()> {
    let server = Server::builder().serve_with_incoming(EchoService, listener.incoming());
    Ok(server.await?)
}

async fn call(address: &str) -> Result<()> {
    let address = address.to_owned();
    let mut client = EchoClient::new(move || RdmaStream::connect(address.clone())).await?;
    for len in [0, 5, 100, 1 << 20] {
        let payload = Bytes::from(vec![42; len]);
        ensure!(client.echo(payload.clone()).await? == payload, "the echo differs");
        println!("a payload of {len} bytes came back");
    }
    Ok(())
}
