//! Which file systems are trusted with locks.

use std::os::fd::AsFd;

/// What kind of file system a directory is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// A disk of this machine.
    Disk,
    /// Gone after a reboot.
    Memory,
    /// Shared by machines, or served by a program that may do so.
    Network(&'static str),
}

impl FileSystem {
    pub(crate) fn of(directory: impl AsFd) -> rustix::io::Result<Self> {
        // The magic numbers have 32 bits; the field's type differs between architectures.
        Ok(Self::from_magic(rustix::fs::fstatfs(directory)?.f_type as u32))
    }

    /// From `statfs(2)`'s `f_type`; linux/magic.h and each file system's own source.
    fn from_magic(magic: u32) -> Self {
        match magic {
            0x0102_1994 | 0x8584_58f6 => Self::Memory,
            0x0000_6969 => Self::Network("NFS"),
            0x0000_517b | 0xff53_4d42 | 0xfe53_4d42 => Self::Network("SMB"),
            0x0000_564c => Self::Network("NCP"),
            0x0102_1997 => Self::Network("9P"),
            0x0116_1970 => Self::Network("GFS2"),
            0x00c3_6400 => Self::Network("Ceph"),
            0x0bd0_0bd0 => Self::Network("Lustre"),
            0x5346_414f | 0x6b41_4653 => Self::Network("AFS"),
            // sshfs, GlusterFS and object stores look like this, and virtiofs too.
            0x6573_5546 => Self::Network("FUSE"),
            0x7375_7245 => Self::Network("Coda"),
            0x7461_636f => Self::Network("OCFS2"),
            0x786f_4256 => Self::Network("VirtualBox shared folder"),
            0xaad7_aaea => Self::Network("PanFS"),
            0x4750_4653 => Self::Network("GPFS"),
            _ => Self::Disk,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_told_from_local_ones() {
        let network = [
            (0x6969, "NFS"),
            (0x517b, "SMB"),
            (0xff53_4d42, "SMB"),
            (0xfe53_4d42, "SMB"),
            (0x0102_1997, "9P"),
            (0x6573_5546, "FUSE"),
            (0x00c3_6400, "Ceph"),
            (0x5346_414f, "AFS"),
        ];
        for (magic, name) in network {
            assert_eq!(FileSystem::from_magic(magic), FileSystem::Network(name));
        }
        // ext4, XFS, Btrfs, ZFS, F2FS, overlayfs.
        for magic in [0xef53, 0x5846_5342, 0x9123_683e, 0x2fc1_2fc1, 0xf2f5_2010, 0x794c_7630] {
            assert_eq!(FileSystem::from_magic(magic), FileSystem::Disk);
        }
    }

    #[test]
    fn a_real_directory_is_asked() {
        let shm = std::fs::File::open("/dev/shm").unwrap();
        assert_eq!(FileSystem::of(shm).unwrap(), FileSystem::Memory);
    }
}
