//! An axum server and a hyper client that talk over RDMA.
//!
//! `cargo run -p nonic-web-examples --example axum_server` runs both in one process and ends;
//! with `--server 127.0.0.1:8080` it serves, and with `--client 127.0.0.1:8080` it asks such a server.

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use nonic_stream::{RdmaListener, RdmaStream};
use nonic_web_examples::http::{HttpClient, router};

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => {
            let listener = RdmaListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            tokio::spawn(serve(listener));
            ask(&address.to_string()).await
        }
        ["--server", address] => serve(RdmaListener::bind(address).await?).await,
        ["--client", address] => ask(address).await,
        _ => bail!("arguments are none, --server ADDRESS or --client ADDRESS"),
    }
}

async fn serve(listener: RdmaListener) -> Result<()> {
    // With TCP this line is the same, and the listener is a TcpListener.
    Ok(axum::serve(listener, router()).await?)
}

async fn ask(address: &str) -> Result<()> {
    let mut client = HttpClient::new(RdmaStream::connect(address).await?).await?;
    print!("{}", String::from_utf8_lossy(&client.greeting().await?));
    let body = Bytes::from(vec![42; 1 << 20]);
    ensure!(client.echo(body.clone()).await? == body, "the echo differs");
    println!("a body of {} bytes came back", body.len());
    Ok(())
}
