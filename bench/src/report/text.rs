//! Text of servers, errors and other people's libraries: it may contain anything.

/// One line: what would steer a terminal, turn the reading direction or be no XML is shown, not obeyed.
pub(super) fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for symbol in text.trim().chars() {
        match symbol {
            '\n' | '\t' => line.push(' '),
            '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                line.extend(symbol.escape_unicode());
            }
            control if control.is_control() => line.extend(control.escape_unicode()),
            plain => line.push(plain),
        }
    }
    line
}

/// At most so many characters, the last one an ellipsis if some are left out.
pub(super) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Lines of at most so many characters, broken at spaces where there are any.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut length = 0;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let symbols: Vec<char> = word.chars().collect();
        for (index, piece) in symbols.chunks(width).enumerate() {
            let joint = usize::from(length > 0 && index == 0);
            if length > 0 && (index > 0 || length + joint + piece.len() > width) {
                lines.push(String::new());
                length = 0;
            }
            if let Some(line) = lines.last_mut() {
                if length > 0 {
                    line.push(' ');
                    length += 1;
                }
                line.extend(piece);
                length += piece.len();
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_is_left() {
        assert_eq!(printable("a\u{1b}[31m\nb\u{202e}c\0"), r"a\u{1b}[31m b\u{202e}c\u{0}");
    }

    #[test]
    fn lines_are_no_longer_than_the_width() {
        assert_eq!(wrapped("one two  three", 8), ["one two", "three"]);
        assert_eq!(wrapped("a abcdefghij b", 4), ["a", "abcd", "efgh", "ij b"]);
        assert_eq!(wrapped("", 4), [""]);
    }

    #[test]
    fn a_long_text_ends_in_an_ellipsis() {
        assert_eq!(shortened("abcd", 4), "abcd");
        assert_eq!(shortened("abcde", 4), "abc…");
    }
}
