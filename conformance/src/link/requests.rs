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
    /// Whether a driver sent it by itself to show that it lives, and asked for nothing: ZooKeeper's ping.
    pub(super) fn is_ping(&self) -> bool {
        self.bytes == *b"\x00\x00\x00\x08\xff\xff\xff\xfe\x00\x00\x00\x0b"
    }
}

/// Splits what a client sends into requests: Redis's arrays of bulk strings; of another protocol, each
/// chunk is one.
#[derive(Debug, Default)]
pub(super) struct Splitter(Vec<u8>);

impl Splitter {
    pub(super) fn push(&mut self, chunk: &[u8]) -> Vec<Request> {
        self.0.extend_from_slice(chunk);
        let mut requests = Vec::new();
        while !self.0.is_empty() {
            if !is_array(&self.0) {
                requests.push(Request { word: String::new(), bytes: std::mem::take(&mut self.0) });
                break;
            }
            let Some((word, end)) = array(&self.0) else { break };
            let rest = self.0.split_off(end);
            requests.push(Request { word, bytes: std::mem::replace(&mut self.0, rest) });
        }
        requests
    }
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
    fn another_protocol_passes_chunk_by_chunk() {
        for chunk in [b"\x00\x01*3", b"*\x00\x00\x00"] {
            let requests = Splitter::default().push(chunk);
            assert_eq!(requests, [Request { word: String::new(), bytes: chunk.to_vec() }]);
        }
    }
}
