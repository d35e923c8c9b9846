use std::collections::BTreeMap;

/// What a client has sent so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    /// How many requests.
    pub(crate) total: u64,
    /// How many connections were opened.
    pub(crate) connections: u64,
    words: BTreeMap<String, u64>,
}

impl Requests {
    /// How many with this first word, in upper case: a Redis command's name, or `ACQUIRE`, `RENEW` and
    /// `RELEASE` where there is no wire.
    pub(crate) fn of(&self, word: &str) -> u64 {
        self.words.get(word).copied().unwrap_or(0)
    }

    pub(super) fn count(&mut self, word: &str) {
        self.total += 1;
        *self.words.entry(word.to_owned()).or_default() += 1;
    }
}

/// One request on its way to the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) word: String,
    pub(super) bytes: Vec<u8>,
}

impl Request {
    /// Whether a driver sent it by itself and asked for nothing: ZooKeeper's ping, and HTTP/2's frames
    /// without data.
    pub(super) fn is_ping(&self) -> bool {
        self.word == NOTHING || self.bytes == *b"\x00\x00\x00\x08\xff\xff\xff\xfe\x00\x00\x00\x0b"
    }
}

/// The word of what asks for nothing.
const NOTHING: &str = "-";

/// What every connection of HTTP/2 begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Splits what a client sends into requests: Redis's arrays of bulk strings, and HTTP/2's frames of data,
/// each of them one message of gRPC; of another protocol, each chunk is one.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    bytes: Vec<u8>,
    http2: bool,
}

impl Splitter {
    pub(super) fn push(&mut self, chunk: &[u8]) -> Vec<Request> {
        self.bytes.extend_from_slice(chunk);
        let mut requests = Vec::new();
        while !self.bytes.is_empty() {
            let found = if self.http2 {
                frame(&self.bytes)
            } else if is_array(&self.bytes) {
                array(&self.bytes)
            } else if self.bytes.starts_with(PREFACE) {
                self.http2 = true;
                Some((NOTHING.into(), PREFACE.len()))
            } else {
                Some((String::new(), self.bytes.len()))
            };
            let Some((word, end)) = found else { break };
            let rest = self.bytes.split_off(end);
            requests.push(Request { word, bytes: std::mem::replace(&mut self.bytes, rest) });
        }
        requests
    }
}

/// The word of an HTTP/2 frame, and where it ends; `None` if it is not whole yet.
fn frame(bytes: &[u8]) -> Option<(String, usize)> {
    let [a, b, c, kind, ..] = *bytes else { return None };
    let length = u32::from_be_bytes([0, a, b, c]) as usize;
    let end = length + 9;
    bytes.get(..end)?;
    let asks = kind == 0 && length > 0;
    Some((if asks { String::new() } else { NOTHING.into() }, end))
}

/// Whether this may become Redis's array: packets of other protocols may start with an asterisk too, as
/// the length of those that have 42 bytes.
fn is_array(bytes: &[u8]) -> bool {
    bytes[0] == b'*' && bytes.get(1).is_none_or(u8::is_ascii_digit)
}

/// The first word of an array, and where the array ends; `None` if it is not whole yet.
fn array(bytes: &[u8]) -> Option<(String, usize)> {
    let (count, mut at) = header(bytes, 0)?;
    let mut word = None;
    for _ in 0..count {
        let (length, start) = header(bytes, at)?;
        at = start + length + 2;
        let text = bytes.get(start..at)?;
        word.get_or_insert_with(|| String::from_utf8_lossy(&text[..length]).to_ascii_uppercase());
    }
    Some((word.unwrap_or_default(), at))
}

/// The number in a line such as `*3\r\n`, and where the next line starts.
fn header(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let line = bytes.get(at + 1..)?;
    let end = line.iter().position(|&byte| byte == b'\r')?;
    line.get(end + 1)?;
    let number = std::str::from_utf8(&line[..end]).ok()?.parse().ok()?;
    Some((number, at + 1 + end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_found_however_the_bytes_are_cut() {
        let ping = b"*1\r\n$4\r\nping\r\n";
        let get = b"*2\r\n$3\r\nGET\r\n$5\r\na\r\nb*\r\n";
        let stream = [ping.as_slice(), get, ping].concat();
        for size in 1..stream.len() {
            let mut splitter = Splitter::default();
            let requests: Vec<_> = stream.chunks(size).flat_map(|chunk| splitter.push(chunk)).collect();
            let words: Vec<_> = requests.iter().map(|request| request.word.as_str()).collect();
            assert_eq!(words, ["PING", "GET", "PING"]);
            let bytes: Vec<_> = requests.into_iter().flat_map(|request| request.bytes).collect();
            assert_eq!(bytes, stream);
        }
    }

    #[test]
    fn only_data_is_a_request_of_http_2() {
        let data = b"\x00\x00\x02\x00\x00\x00\x00\x00\x01hi";
        let end = b"\x00\x00\x00\x00\x01\x00\x00\x00\x01";
        let ping = b"\x00\x00\x08\x06\x01\x00\x00\x00\x0012345678";
        let stream = [PREFACE, data, end, ping, data].concat();
        for size in PREFACE.len()..stream.len() {
            let mut splitter = Splitter::default();
            let requests: Vec<_> = stream.chunks(size).flat_map(|chunk| splitter.push(chunk)).collect();
            let asking: Vec<_> = requests.iter().map(|request| !request.is_ping()).collect();
            assert_eq!(asking, [false, true, false, false, true]);
            let bytes: Vec<_> = requests.into_iter().flat_map(|request| request.bytes).collect();
            assert_eq!(bytes, stream);
        }
    }

    #[test]
    fn another_protocol_passes_chunk_by_chunk() {
        for chunk in [b"\x00\x01*3", b"*\x00\x00\x00"] {
            let requests = Splitter::default().push(chunk);
            assert_eq!(requests, [Request { word: String::new(), bytes: chunk.to_vec() }]);
        }
    }
}
