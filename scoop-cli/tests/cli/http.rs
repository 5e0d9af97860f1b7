//! Requests to a served web page.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The response to a request for this path, with a cookie.
pub(crate) async fn get(address: &str, path: &str, cookie: &str) -> String {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).await.unwrap();
    response
}

/// Opens the URL: the address, and the cookie that comes with the redirect.
pub(crate) async fn log_in(url: &str) -> (String, String) {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let response = get(address, &format!("/{path}"), "none=").await;
    assert!(response.starts_with("HTTP/1.1 303 "), "{response}");
    let header = |name: &str| {
        let values = response.lines().filter_map(|line| line.split_once(": "));
        values
            .filter(|(it, _)| it.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(header("location"), "/");
    let cookie = header("set-cookie").split(';').next().unwrap().to_owned();
    assert!(cookie.starts_with("scoop-"), "{response}");
    (address.to_owned(), cookie)
}
