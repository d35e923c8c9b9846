UPDATE `polylock` SET
    owner = NULL,
    label = '',
    deadline = '1970-01-01',
    version = version + 1
WHERE name = ? AND owner = ? AND deadline > UTC_TIMESTAMP(6) AND waiting = 0
