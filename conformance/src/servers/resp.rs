use std::{
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// Sends one Redis command over a connection of its own and gives the reply as text; the elements of
/// an array one a line.
pub(super) fn command(address: SocketAddr, limit: Duration, words: &[&str]) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request += &format!("${}\r\n{word}\r\n", word.len());
    }
    stream.write_all(request.as_bytes())?;
    reply(&mut BufReader::new(stream))
}

fn reply(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let line = line.trim_end();
    let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::UnexpectedEof)?;
    match kind {
        "-" => Err(io::Error::other(rest.to_owned())),
        "$" if rest != "-1" => {
            let mut text = vec![0; length(rest)? + 2];
            stream.read_exact(&mut text)?;
            text.truncate(text.len() - 2);
            Ok(String::from_utf8_lossy(&text).into_owned())
        }
        "*" if rest != "-1" => {
            let items = (0..length(rest)?).map(|_| reply(stream)).collect::<io::Result<Vec<_>>>()?;
            Ok(items.join("\n"))
        }
        "$" | "*" => Ok(String::new()),
        _ => Ok(rest.to_owned()),
    }
}

fn length(digits: &str) -> io::Result<usize> {
    digits.parse().map_err(|_| io::Error::other(format!("a reply of length {digits:?}")))
}
