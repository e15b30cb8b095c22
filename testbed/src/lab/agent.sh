# Takes commands in a guest. A line with a number on the second serial port means: run /run/lab/NUMBER.command.
# Its output goes to NUMBER.output and its exit status, when it has ended, to NUMBER.status. A question is answered by its number.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb
cd /tmp
# Whether somebody listens on a TCP port, given in hexadecimal. Starts no process: they are slow in here.
listens() {
    local table line lines
    for table in tcp tcp6; do
        mapfile -t lines < /proc/net/$table
        for line in "${lines[@]}"; do [[ $line == *:$1\ *\ 0A\ * ]] && return; done
    done
    return 1
}
export -f listens
stty -F /dev/ttyS1 raw -echo
exec 3</dev/ttyS1
echo up > /run/lab/ready.new
mv /run/lab/ready.new /run/lab/ready
while read -r word number <&3; do
    case $word in
    run)
        setsid bash -c '
            echo $$ > $0.process
            bash $0.command > $0.output 2>&1 < /dev/null
            echo $? > $0.new
            mv $0.new $0.status' /run/lab/$number 3<&- &
        ;;
    kill) kill -KILL -- -"$(cat /run/lab/$number.process)" ;;
    ask) echo $number > /run/lab/answer ;;
    off) echo o > /proc/sysrq-trigger ;;
    esac
done
