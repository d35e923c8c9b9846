//! A server's process, found by its listening port.

use std::{
    fs,
    net::{IpAddr, ToSocketAddrs},
    time::Duration,
};

/// The processes of this machine that listen on a port, if the host is this machine and we may look.
pub(crate) fn listening(host: &str, port: u16) -> Vec<u32> {
    let is_local = |address: IpAddr| std::net::UdpSocket::bind((address, 0)).is_ok();
    let Ok(mut addresses) = (host, port).to_socket_addrs() else { return Vec::new() };
    if !addresses.any(|address| is_local(address.ip())) {
        return Vec::new();
    }
    let sockets: Vec<_> =
        ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().flat_map(|t| inodes(t, port)).collect();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| has_any(*id, &sockets)).collect()
}

/// The sockets that listen on the port.
fn inodes(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let text = fs::read_to_string(table).unwrap_or_default();
    let listens = |line: &str| -> Option<String> {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next()?;
        let state = fields.nth(1)?;
        let inode = fields.nth(5)?;
        let port_of_line = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
        (state == LISTEN && port_of_line == port).then(|| format!("socket:[{inode}]"))
    };
    text.lines().skip(1).filter_map(listens).collect()
}

fn has_any(process: u32, sockets: &[String]) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    descriptors.flatten().any(|descriptor| {
        let target = fs::read_link(descriptor.path()).unwrap_or_default();
        sockets.iter().any(|socket| target.as_os_str() == socket.as_str())
    })
}

/// The CPU time that these processes have used; `None` if there are none, or they do not tell.
pub(crate) fn cpu_time(processes: &[u32]) -> Option<Duration> {
    if processes.is_empty() {
        return None;
    }
    processes.iter().map(|process| cpu_time_of(*process)).sum()
}

fn cpu_time_of(process: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_by_the_port_it_listens_on() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(listening("127.0.0.1", port), [std::process::id()]);
        assert!(listening("192.0.2.1", port).is_empty());
        drop(listener);
        assert!(listening("127.0.0.1", port).is_empty());
    }

    #[test]
    fn cpu_time_grows_with_work() {
        let own = [std::process::id()];
        let before = cpu_time(&own).unwrap();
        while cpu_time(&own).unwrap() - before < Duration::from_millis(30) {
            std::hint::black_box((0..10_000_u64).sum::<u64>());
        }
        assert_eq!(cpu_time(&[]), None);
    }
}
