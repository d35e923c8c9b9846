UPDATE `polylock` SET
    deadline = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND,
    version = version + 1
WHERE name = ? AND owner = ? AND deadline > UTC_TIMESTAMP(6)
