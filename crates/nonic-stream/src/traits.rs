//! The traits of tokio, and behind a feature those of the futures crate, for streams and their halves.

use crate::split::{OwnedReadHalf, OwnedWriteHalf};
use crate::stream::RdmaStream;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

macro_rules! reads {
    ($name:ty) => {
        impl AsyncRead for $name {
            fn poll_read(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                if buffer.remaining() == 0 {
                    return Poll::Ready(Ok(()));
                }
                let bytes = ready!(self.reader.poll_bytes(context))?;
                let count = bytes.len().min(buffer.remaining());
                buffer.put_slice(&bytes[..count]);
                self.reader.consume(count);
                Poll::Ready(Ok(()))
            }
        }

        impl AsyncBufRead for $name {
            fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
                self.get_mut().reader.poll_bytes(context)
            }

            fn consume(mut self: Pin<&mut Self>, amount: usize) {
                self.reader.consume(amount);
            }
        }

        #[cfg(feature = "futures-io")]
        impl futures_io::AsyncRead for $name {
            fn poll_read(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffer: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                if buffer.is_empty() {
                    return Poll::Ready(Ok(0));
                }
                let bytes = ready!(self.reader.poll_bytes(context))?;
                let count = bytes.len().min(buffer.len());
                buffer[..count].copy_from_slice(&bytes[..count]);
                self.reader.consume(count);
                Poll::Ready(Ok(count))
            }
        }
    };
}

macro_rules! writes {
    ($name:ty) => {
        impl AsyncWrite for $name {
            fn poll_write(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.writer.poll_write(context, bytes)
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                pieces: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.writer.poll_write_vectored(context, pieces)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.writer.poll_flush()
            }

            fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.writer.poll_shutdown(context)
            }
        }

        #[cfg(feature = "futures-io")]
        impl futures_io::AsyncWrite for $name {
            fn poll_write(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.writer.poll_write(context, bytes)
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                pieces: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.writer.poll_write_vectored(context, pieces)
            }

            fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.writer.poll_flush()
            }

            fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.writer.poll_shutdown(context)
            }
        }
    };
}

reads!(RdmaStream);
reads!(OwnedReadHalf);
writes!(RdmaStream);
writes!(OwnedWriteHalf);

#[cfg(all(test, feature = "futures-io"))]
mod tests {
    use super::*;

    /// Compiles, or the feature does not do what it says.
    #[test]
    fn streams_and_halves_are_those_of_the_futures_crate_too() {
        fn reads<T: futures_io::AsyncRead + Unpin + Send>() {}
        fn writes<T: futures_io::AsyncWrite + Unpin + Send>() {}
        reads::<RdmaStream>();
        reads::<OwnedReadHalf>();
        writes::<RdmaStream>();
        writes::<OwnedWriteHalf>();
    }
}
