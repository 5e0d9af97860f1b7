//! The web page, as the program serves it.

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::support::Shop;

#[tokio::test(flavor = "multi_thread")]
async fn page_is_served_at_the_written_url() {
    let shop = Shop::open().await;
    let mut program = shop.command(&["serve", "--listen", "127.0.0.1:0"]).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let url = lines.next_line().await.unwrap().unwrap();
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut connection = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 303 ") && response.contains("set-cookie: scoop-"), "{response}");
    program.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn short_token_and_taken_port_are_refused() {
    let mut shop = Shop::open().await;
    let ran = shop.run(&["serve", "--token", "short"]).await;
    assert!(ran.code == 2 && ran.stderr.contains("16 bytes or more"), "{ran:?}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ran = shop.run(&["serve", "--listen", &taken.local_addr().unwrap().to_string()]).await;
    assert!(ran.code == 3 && ran.stderr.contains("cannot be bound"), "{ran:?}");
}
