//! Serves the objects of a directory at a free port of this machine, which it prints: `nigh-test-object-store DIRECTORY ACCESS_KEY SECRET_KEY`. Each
//! directory in it is a bucket.

use hyper_util::rt::{TokioExecutor, TokioIo};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, access_key, secret_key] = &arguments[..] else {
        return Err("give a directory, an access key and a secret key".into());
    };
    let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(directory).map_err(|error| format!("{error:?}"))?);
    builder.set_auth(SimpleAuth::from_single(access_key.as_str(), secret_key.as_str()));
    let service = builder.build();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?.port());
        let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
        loop {
            let (socket, _) = listener.accept().await?;
            let connection = server.serve_connection(TokioIo::new(socket), service.clone()).into_owned();
            tokio::spawn(async move {
                // A client may go at any time.
                let _gone = connection.await;
            });
        }
    })
}
